"""Commands on tools, MCP servers and plans: list, describe, call and check tools, and accept their specifications.

MCP servers, which offer tools, are listed, added and checked. A plan is checked, at the gateway or with given tools.
"""

import asyncio
import json
import sys
import tomllib
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from typer.core import TyperGroup

from contracts.tools.messages import ToolSpec
from contracts.wire.faults import describe
from contracts.wire.names import InvalidName
from runwire.cli import acceptance, frame, operator
from runwire.cli.operator import OperatorRefused, server_checks
from runwire.cli.pauses import Approved, called, print_progress
from runwire.cli.printing import ERR, OUT, Exit, json_text, marked, one_line, print_error, print_table, short, visible
from runwire.client import Client
from runwire.errors import IdentitiesUnreadable, InvalidCredential, ToolError, ToolsNotLoaded
from runwire.events import ToolProgress
from runwire.plans import PlanReport, TemplatePath, report, template_paths
from runwire.plans.schema_fields import Fields
from runwire.plans.schema_folding import Steps, TooManySteps
from runwire.serving import server
from runwire.serving.tool_server import authors_trace
from runwire.testing import Paused, RecordingContext

MAX_ARGUMENTS = 500
_DESCRIPTION_CHARACTERS = 60
_QUIET_S = 1.0
"""A call that takes longer is followed, and its progress is shown."""
_EXPECTED = (IdentitiesUnreadable, InvalidCredential, InvalidName, OperatorRefused, ToolsNotLoaded)


class _ToolsGroup(TyperGroup):
    """What begins with no command is `show`: `runwire tools` lists, `runwire tools NAME` describes one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Add the command, in place of `ls` where that is given."""
        is_whole = ctx.resilient_parsing or (args and args[0] in {*self.commands, *ctx.help_option_names})
        return super().parse_args(ctx, args if is_whole else ["show", *(args[1:] if args[:1] == ["ls"] else args)])


commands = typer.Typer()
tools = typer.Typer(cls=_ToolsGroup, subcommand_metavar="[NAME | COMMAND [ARGS]...]")
mcp, plan = typer.Typer(cls=frame.Noun), typer.Typer(no_args_is_help=True)
commands.add_typer(tools, name="tools")
commands.add_typer(mcp, name="mcp")
commands.add_typer(plan, name="plan")


def _flags(spec: ToolSpec) -> list[str]:
    return [name for name in ("idempotent", "requires_approval", "hidden") if getattr(spec, name)]


def document(spec: ToolSpec) -> dict[str, Any]:
    """Return the specification as JSON, with the paths of its output as templates."""
    paths = [
        {"template": _template(path), "types": list(path.types), "note": path.note}
        for path in template_paths(spec.output_schema)
    ]
    return {**spec.model_dump(mode="json"), "paths": paths}


def lines(spec: ToolSpec) -> list[str]:
    """Return a description of a tool for people."""
    found = [one_line(f"{spec.name}  {', '.join([*_flags(spec), f'side effects: {spec.side_effects}'])}")]
    found += [visible(line) for line in spec.description.splitlines() if line.strip()]
    found += ["", "arguments"]
    found += _columns(_arguments(spec)) or ["  none are declared"]
    found += ["", "paths in its output, for templates in later calls; N is the number of its call"]
    if spec.output_schema is None:
        return [*found, "  it declares no output, so no template can refer to it"]
    paths = [[_template(path), " or ".join(path.types), path.note] for path in template_paths(spec.output_schema)]
    return [*found, *(_columns(paths) or ["  none are declared"])]


def _template(path: TemplatePath) -> str:
    return f"$N.output.{path.path}" if path.path else ""


def _arguments(spec: ToolSpec) -> list[list[str]]:
    schema = spec.input_schema
    fields = Fields(schema, Steps())
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    rows: list[list[str]] = []
    try:
        for name in fields.names(schema, MAX_ARGUMENTS):
            types = " or ".join(sorted(fields.types(fields.inside(schema, name))))
            properties = schema.get("properties")
            part = properties.get(name) if isinstance(properties, dict) else None
            text = part.get("description") if isinstance(part, dict) else None
            description = text if isinstance(text, str) else ""
            rows.append([name, types, "required" if name in needed else "", description])
    except TooManySteps:
        rows.append(["…", "", "", "the schema is too complex"])
    return rows


def _columns(rows: list[list[str]]) -> list[str]:
    """Return rows as lines of aligned columns."""
    shown = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in shown]


@frame.command(tools)
async def show(client: Client, name: Annotated[str | None, typer.Argument()] = None) -> frame.Found:
    """Describe a tool: what it takes, and every path in its output that a template of a plan may name."""
    specs = {spec.name: spec for spec in await client.tools()}
    refused = {tool.name: tool.reason for tool in await client.refused_tools()} if name not in specs else {}
    if name is None:
        return frame.Found(list(specs.values()), lambda: _print(specs.values(), refused))
    if name in specs:
        text = "\n".join(lines(specs[name]))
        return frame.Found(document(specs[name]), lambda: print(text))  # noqa: T201
    reason = f"it is refused: {refused[name]}" if name in refused else f"the tools are {', '.join(specs) or 'none'}"
    print_error(f"there is no tool {name}; {reason}")
    raise typer.Exit(Exit.FAILED)


def _print(specs: Iterable[ToolSpec], refused: Mapping[str, str]) -> None:
    rows = [["tool", "flags", "description", "arguments"]]
    for spec in specs:
        arguments = one_line(", ".join(spec.input_schema.get("properties") or {}))
        description = short(one_line(spec.description), _DESCRIPTION_CHARACTERS)
        rows.append([spec.name, " ".join(_flags(spec)), description, arguments])
    print_table(rows)
    for name, reason in refused.items():
        ERR.print(f"{marked(name)} is refused: {marked(reason)}")


@frame.command(mcp, "ls")
async def list_servers(client: Client) -> frame.Found:
    """List the MCP servers of the tool runner: how many tools of each are offered, and what is wrong with it."""
    found = await _servers(client, "warning")
    return (
        frame.checklist(found) if found else frame.Found([], lambda: ERR.print("[dim]there are no MCP servers[/dim]"))
    )


@frame.command(mcp, "check")
async def check_server(
    client: Client, name: Annotated[str | None, typer.Argument(help="One server. Default: all.")] = None
) -> frame.Found:
    """Check MCP servers; the exit code says whether something is wrong with one."""
    found = [check for check in await _servers(client, "failed") if name in {None, check.name}]
    return frame.checklist(
        found or [frame.Check(name or "mcp", "failed", "there is no such server", "docs/mcp.md#the-file")]
    )


async def _servers(client: Client, bad: Literal["warning", "failed"]) -> list[frame.Check]:
    return server_checks(await client.tools(), await client.refused_tools(), bad)


@mcp.command()
def add(
    name: str,
    command: Annotated[list[str] | None, typer.Argument(help="After --: the program and its arguments.")] = None,
    address: Annotated[str | None, typer.Option("--address", help="Of a server over HTTP, in place of it.")] = None,
    file: Annotated[Path, typer.Option(envvar="RUNWIRE_MCP_SERVERS_FILE", help="TOML; made if missing.")] = Path(
        "servers.toml"
    ),
) -> None:
    """Add a server to the file of the tool runner, which reads it when it starts."""
    known = tomllib.loads(file.read_text(encoding="utf-8")).get("servers", {}) if file.exists() else {}
    if name in known or (command is None) == (address is None):
        wrong = "is in it already" if name in known else "needs either a program after -- or --address"
        raise typer.BadParameter(f"{name} {wrong}")
    fields = {"url": address} if address is not None else {"command": (command or [""])[0], "args": (command or [])[1:]}
    lines = [f"{field} = {json.dumps(value, ensure_ascii=False)}" for field, value in fields.items()]
    with file.open("a", encoding="utf-8") as opened:
        opened.write("\n".join([f"\n[servers.{json.dumps(name)}]", *lines, ""]))
    print(f"{name} is in {file}; RUNWIRE_MCP_SERVERS_FILE={file} tells the tool runner")  # noqa: T201, its result


@frame.command(tools)
@frame.command(commands)
async def call(
    client: Client,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="As `runwire tools` lists it.")],
    args: Annotated[str, typer.Argument(metavar="JSON", help="The arguments, as an object.")] = "{}",
    agent: frame.Agent = None,
    yes: Approved = False,
    local: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Call the tool of this Python file here, without a server.")
    ] = None,
) -> frame.Found:
    """Call a tool, without a model, and print its result.

    Exit codes are those of `run`.
    """
    if local is not None:
        return await _called_here(local, tool, frame.json_object(args, "JSON"))
    run = await client.call_tool(tool, frame.json_object(args, "JSON"), wait_s=_QUIET_S, **frame.given(agent=agent))
    if run.ended_at is None and not run.pauses and run.paused is None:
        run = await client.wait(run.run_id, on_event=print_progress)
    return await called(client, run, is_approved=yes)


class _Shown(RecordingContext):
    """Shows what a tool reports while it runs here."""

    def progress(self, message: str = "", fraction: float | None = None) -> Awaitable[None]:
        """Print a report of progress."""
        print_progress(ToolProgress(call_id="", tool="", message=message, fraction=fraction))
        return super().progress(message, fraction)


async def _called_here(file: Path, name: str, args: dict[str, Any]) -> frame.Found:
    found = {tool.name: tool for tool in server.tools_of([file])}
    if name not in found:
        raise typer.BadParameter(f"{file} has {', '.join(found)}", param_hint="TOOL")
    context, failure = _Shown(), ""
    result: Any = None
    try:
        result = from_json(await found[name].run(args, context))
    except Paused as paused:
        failure = f"it waits for a person: {paused.pause.title or paused.pause.reason}"
    except ToolError as error:
        failure = f"{error.reason} ({error.code})"
    except Exception as error:  # noqa: BLE001, the author's
        failure = authors_trace(error)

    def show() -> None:
        for stream, pieces in context.pieces.items():
            ERR.print(f"[magenta]“{marked(stream)}”, {len(pieces)} pieces:[/magenta] {json_text(pieces, cut=True)}")
        if failure:
            print_error(failure)
        else:
            OUT.print(json_text(result))

    return frame.Found(
        {"result": result, "failure": failure or None, "pieces": context.pieces}, show, Exit.ERROR if failure else 0
    )


for _work in (acceptance.diff, acceptance.accept, acceptance.declare, acceptance.forget, operator.check):
    frame.command(tools, expected=_EXPECTED)(_work)


@frame.command(tools, "digest", expected=_EXPECTED)
def print_digests(files: list[Path]) -> frame.Found:
    """Print the digest of each tool in Python files, or of specifications as JSON, for `runwire tools accept`."""
    specs = [spec for file in files for spec in acceptance.read_specs(file)]
    text = "".join(f"{spec.name} {spec.digest()}\n" for spec in specs)
    found = [{"name": spec.name, "digest": spec.digest()} for spec in specs]
    return frame.Found(found, lambda: print(text, end=""))  # noqa: T201


class _Unreadable(Exception):
    """A file cannot be used; the text says why."""


@plan.callback()
def _plans() -> None:
    """Plans of the strategy `planned`: check one without running it."""


@frame.command(plan, "check", expected=(_Unreadable,))
def check_plan(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A plan as JSON, as a model gives it; - is stdin.")],
    tools: Annotated[
        Path | None,
        typer.Option(help="Tools as `runwire tools -o json` prints them; by default the gateway checks with its own."),
    ] = None,
    url: frame.Url = None,
    api_key: frame.Key = None,
) -> frame.Found:
    """Say what is wrong with a plan: one line for each error and warning, and what to do.

    Nothing runs. Exit code 0: it is valid; 1: it is not.
    """

    async def by_gateway(given: Any) -> PlanReport:
        async with frame.client_of(url, api_key) as client:
            return await client.check_plan(given)

    given = _read(file)
    if isinstance(given, dict) and given.keys() == {"plan"}:
        given = given["plan"]  # The body of a request to the gateway.
    found = asyncio.run(by_gateway(given)) if tools is None else report(given, _read_tools(tools))

    def show() -> None:
        errors = len(found.errors) + (found.errors_left_out > 0)
        for number, line in enumerate(found.lines):
            sys.stdout.write(f"{'✗' if number < errors else '!'} {visible(line)}\n")
        kind = "a direct response" if found.kind == "direct_response" else "a plan of calls"
        sys.stdout.write(f"{kind}: valid\n" if found.valid else "not valid: nothing of it would run\n")

    return frame.Found(found, show, 0 if found.valid else Exit.FAILED)


def _read(file: str) -> Any:
    """Read JSON of a file, or of stdin. Raises _Unreadable."""
    try:
        return json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError.
        raise _Unreadable(f"{file} holds no JSON: {error}") from error
    except OSError as error:
        raise _Unreadable(f"{file}: {error.strerror}") from error


def _read_tools(file: Path) -> dict[str, ToolSpec]:
    found, wrong = _read(str(file)), f"{file} holds no list of tools, as `runwire tools -o json` prints it"
    try:
        specs = TypeAdapter(list[ToolSpec]).validate_python(found["tools"] if isinstance(found, dict) else found)
    except KeyError:
        raise _Unreadable(wrong) from None
    except ValidationError as error:
        raise _Unreadable(f"{wrong}: {describe(error)}") from error
    return {spec.name: spec for spec in specs if not spec.hidden}  # Plans cannot use hidden ones.
