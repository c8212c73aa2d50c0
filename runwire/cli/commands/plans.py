"""The command on plans: check one, at the gateway or with a list of tools."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from contracts.wire.faults import describe
from runwire.cli.frame import Found, Key, Url, client_of, works
from runwire.cli.printing import EXIT_FAILED, visible
from runwire.client import ToolSpec
from runwire.plans import PlanReport, report

commands = typer.Typer()
plan = typer.Typer(no_args_is_help=True)
commands.add_typer(plan, name="plan")


class _Unreadable(Exception):
    """A file cannot be used; the text says why."""


@plan.callback()
def _plans() -> None:
    """Plans of the strategy `planned`: check one without running it."""


@works(plan, _Unreadable)
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A plan as JSON, as a model gives it; - is stdin.")],
    tools: Annotated[
        Path | None,
        typer.Option(help="Tools as `runwire tools -o json` prints them; by default the gateway checks with its own."),
    ] = None,
    url: Url = None,
    api_key: Key = None,
) -> Found:
    """Say what is wrong with a plan: one line for each error and warning, and what to do.

    Nothing runs. Exit code 0: it is valid; 1: it is not.
    """

    async def by_gateway(given: Any) -> PlanReport:
        async with client_of(url, api_key) as client:
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

    return Found(found, show, 0 if found.valid else EXIT_FAILED)


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
