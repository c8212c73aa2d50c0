"""Commands on tools: list them, describe one, accept their specifications, serve them."""

import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from contracts.wire.names import InvalidName
from runwire.cli.check import Check, print_checks
from runwire.cli.common import Format, Key, Output, Url, client_of, finish, one_line, print_line, print_table, restart
from runwire.cli.entry_point import SERVE
from runwire.cli.exit_codes import EXIT_FAILED, print_error
from runwire.errors import IdentitiesUnreadable, InvalidCredential, ToolsNotLoaded

T = TypeVar("T")


class _ToolsGroup(TyperGroup):
    """A name that is no command is that of a tool: `runwire tools NAME` is `runwire tools show NAME`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        is_name = args[0] not in self.commands and not args[0].startswith("-")
        return ("show", self.commands["show"], args) if is_name else super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_ToolsGroup,
    subcommand_metavar="[NAME | COMMAND [ARGS]...]",
    help="List the tools that are available now; with NAME, describe one. Accept specifications that changed.",
)


@app.callback(invoke_without_command=True)
def tools(context: typer.Context, url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """List the tools that are available now; with NAME, describe one. Accept specifications that changed."""
    if context.invoked_subcommand is not None:
        return

    async def work() -> int:
        async with client_of(url, api_key) as client:
            specs = await client.tools()
            refused = await client.refused_tools()
        if output is not Output.text:
            dumped = [spec.model_dump(mode="json") for spec in specs]
            sys.stdout.write(json.dumps(dumped, ensure_ascii=False) + "\n")
            return 0
        rows = [["tool", "flags", "arguments", "description"]]
        for spec in specs:
            flags = " ".join(name for name in ("idempotent", "requires_approval") if getattr(spec, name))
            arguments = one_line(", ".join(spec.input_schema.get("properties") or {}))
            rows.append([spec.name, flags, arguments, one_line(spec.description)])
        print_table(rows)
        for tool in refused:
            print_line(Console(stderr=True), f"{escape(tool.name)} is refused: {escape(tool.reason)}")
        return 0

    finish(work())


@app.command()
def show(context: typer.Context, name: str, url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """Describe a tool: what it takes, and every path in its output that a template of a plan may name."""
    from runwire.cli import tool_description  # noqa: PLC0415, the other commands need no rules of plans

    before = context.parent.params if context.parent else {}  # As in `runwire tools -o json NAME`.
    is_json = Output.text is not (output if output is not Output.text else before.get("output", output))

    async def work() -> int:
        async with client_of(url or before.get("url"), api_key or before.get("api_key")) as client:
            specs = {spec.name: spec for spec in await client.tools()}
            refused = {tool.name: tool.reason for tool in await client.refused_tools()} if name not in specs else {}
        if name in specs:
            spec = specs[name]
            text = json.dumps(tool_description.document(spec), ensure_ascii=False) if is_json else ""
            sys.stdout.write((text or "\n".join(tool_description.lines(spec))) + "\n")
            return 0
        reason = f"it is refused: {refused[name]}" if name in refused else f"the tools are {', '.join(specs) or 'none'}"
        print_error(f"there is no tool {name}; {reason}")
        return EXIT_FAILED

    finish(work())


Digest = Annotated[str | None, typer.Argument(help="24 hexadecimal digits. Default: the one that waits.")]


@app.command()
def diff(name: str, digest: Digest = None) -> None:
    """Show how a specification that a tool announces differs from the accepted one."""
    from runwire.cli import acceptance  # noqa: PLC0415, the other commands need no NATS client

    _print_result(acceptance.compare(name, digest))


@app.command()
def accept(name: str, digest: Digest = None) -> None:
    """Accept a specification of a tool that changed. It may come before its rollout; what was accepted stays so."""
    from runwire.cli import acceptance  # noqa: PLC0415, see above

    _print_result(acceptance.accept(name, digest))


@app.command()
def forget(name: str) -> None:
    """Forget what is accepted of a tool: its next specification is accepted as the first one."""
    from runwire.cli import acceptance  # noqa: PLC0415, see above

    _print_result(acceptance.forget(name))


@app.command()
def check(
    name: str,
    args: Annotated[
        str | None, typer.Option(help="A JSON object: call the tool with these arguments, and check its answer too.")
    ] = None,
    context: Annotated[str, typer.Option(help="A JSON object: the tool_context of that call.")] = "{}",
    yes: Annotated[
        bool, typer.Option("--yes", help="Call it also if it requires approval or has side effects.")
    ] = False,
    output: Format = Output.text,
) -> None:
    """Check a tool that is served now against the standard form of results, line by line."""
    from runwire.cli import tool_compliance  # noqa: PLC0415, see above

    given = None if args is None else _read_object(args, "--args")
    found = _done(tool_compliance.checked(name, given, _read_object(context, "--context"), confirmed=yes))
    checks = [Check(one.name, one.status, one.finding, one.mend) for one in found.findings]
    print_checks(checks, as_json=output is not Output.text)
    raise typer.Exit(EXIT_FAILED if any(one.status == "failed" for one in checks) else 0)


def _read_object(text: str, option: str) -> dict[str, Any]:
    from runwire.cli.tool_compliance import read_object  # noqa: PLC0415, see above

    try:
        return read_object(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


@app.command("digest")
def print_digests(files: list[Path], output: Format = Output.text) -> None:
    """Print the digest of each tool in Python files, or of specifications as JSON, for `runwire tools accept`."""
    from runwire.cli.acceptance import read_specs  # noqa: PLC0415, see above

    try:
        found = [{"name": spec.name, "digest": spec.digest()} for file in files for spec in read_specs(file)]
    except ToolsNotLoaded as error:
        print_error(str(error))
        raise typer.Exit(EXIT_FAILED) from error
    if output is not Output.text:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    for one in found:
        sys.stdout.write(f"{one['name']} {one['digest']}\n")


def _print_result(work: Coroutine[Any, Any, str]) -> None:
    """Print the sentence that an operator's command returns, or why it could do nothing."""
    sys.stdout.write(f"{_done(work)}\n")


def _done(work: Coroutine[Any, Any, T]) -> T:
    """Return what an operator's command returns; print why it could do nothing."""
    import asyncio  # noqa: PLC0415, see above

    from runwire.cli.operator import OperatorRefused  # noqa: PLC0415, see above

    try:
        return asyncio.run(work)
    except (IdentitiesUnreadable, InvalidCredential, InvalidName, OperatorRefused) as error:
        print_error(str(error))
        raise typer.Exit(EXIT_FAILED) from error


def serve(
    files: list[Path],
    credentials: Annotated[
        Path | None,
        typer.Option(help="A credential file, as `runwire credentials tool` writes it. [RUNWIRE_NATS_CREDENTIALS]"),
    ] = None,
    nats_url: Annotated[
        str | None,
        typer.Option(help="By default the server that `runwire up` starts. [RUNWIRE_NATS_URL, NATS_URL]"),
    ] = None,
    health_file: Annotated[
        Path | None,
        typer.Option(help="Touched every two seconds while the tools can be called. [RUNWIRE_HEALTH_FILE]"),
    ] = None,
) -> None:
    """Serve the tools of Python files over NATS."""
    options = {
        "files": [str(file) for file in files],
        "url": nats_url,
        "credentials": credentials and str(credentials),
        "health_file": health_file and str(health_file),
    }
    restart(SERVE, options)
