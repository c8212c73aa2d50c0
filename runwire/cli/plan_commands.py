"""The command on plans: check one, at the gateway or with a list of tools."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runwire.cli.common import Format, Key, Output, Url, client_of, finish, visible
from runwire.cli.exit_codes import EXIT_FAILED, print_error

if TYPE_CHECKING:
    from runwire.client import ToolSpec
    from runwire.plans import PlanReport

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _plans() -> None:
    """Plans of the strategy `planned`: check one without running it."""


@app.command()
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A plan as JSON, as a model gives it; - is stdin.")],
    tools: Annotated[
        Path | None,
        typer.Option(help="Tools as `runwire tools -o json` prints them; by default the gateway checks with its own."),
    ] = None,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
) -> None:
    """Say what is wrong with a plan: one line for each error and warning, and what to do.

    Nothing runs. Exit code 0: it is valid; 1: it is not.
    """
    plan = _read(file)
    if isinstance(plan, dict) and plan.keys() == {"plan"}:
        plan = plan["plan"]  # The body of a request to the gateway.
    if tools is not None:
        from runwire.plans import report  # noqa: PLC0415, the other commands need no rules of plans

        specs = _read_tools(tools)
        raise typer.Exit(_show(report(plan, {spec.name: spec for spec in specs}), output))

    async def work() -> int:
        async with client_of(url, api_key) as client:
            return _show(await client.check_plan(plan), output)

    finish(work())


def _show(report: "PlanReport", output: Output) -> int:
    if output is not Output.text:
        sys.stdout.write(f"{report.model_dump_json()}\n")
    else:
        errors = len(report.errors) + (report.errors_left_out > 0)
        for number, line in enumerate(report.lines):
            sys.stdout.write(f"{'✗' if number < errors else '!'} {visible(line)}\n")
        kind = "a direct response" if report.kind == "direct_response" else "a plan of calls"
        sys.stdout.write(f"{kind}: valid\n" if report.valid else "not valid: nothing of it would run\n")
    return 0 if report.valid else EXIT_FAILED


def _read(file: str) -> Any:
    """Read JSON of a file, or of stdin. Raises Exit with the reason."""
    try:
        return json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError.
        print_error(f"{file} holds no JSON: {error}")
    except OSError as error:
        print_error(f"{file}: {error.strerror}")
    raise typer.Exit(EXIT_FAILED)


def _read_tools(file: Path) -> "list[ToolSpec]":
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415, see above

    from contracts.tools.messages import ToolSpec  # noqa: PLC0415
    from contracts.wire.validation_errors import describe  # noqa: PLC0415

    given = _read(str(file))
    try:
        return TypeAdapter(list[ToolSpec]).validate_python(given["tools"] if isinstance(given, dict) else given)
    except KeyError:
        print_error(f"{file} holds no list of tools, as `runwire tools -o json` prints it")
    except ValidationError as error:
        print_error(f"{file} holds no list of tools, as `runwire tools -o json` prints it: {describe(error)}")
    raise typer.Exit(EXIT_FAILED)
