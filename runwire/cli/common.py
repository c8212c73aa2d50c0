"""What the commands share: options, messages, exit codes, and the client of the gateway."""

import asyncio
import shutil
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from runwire.errors import RunwireError, Unreachable
from runwire.local import launch

if TYPE_CHECKING:
    from runwire import Client

EXIT_FAILED, EXIT_ERROR, EXIT_INCOMPLETE, EXIT_CANCELLED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 4, 5, 6, 130
_PATIENCE_S = 10.0
"""How long a command waits for a gateway that does not answer; a script may call it again."""
_DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="RUNWIRE_URL", help="The gateway; by default the one that `runwire up` started."),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--api-key", envvar="RUNWIRE_API_KEY", help="Needed unless the gateway is on this machine without keys."
    ),
]


class Output(StrEnum):
    """How a run is printed."""

    text = "text"
    json = "json"
    jsonl = "jsonl"


Format = Annotated[
    Output, typer.Option("-o", "--output", help="text for people, json for the result, jsonl for every event.")
]


def gateway_url(url: str | None) -> str:
    """The gateway that the user named, else the one of the data folder, else the default."""
    return url or launch.remembered(launch.data_dir()).get("url") or _DEFAULT_URL


def client_of(url: str | None, api_key: str | None) -> "Client":
    """A client of the gateway."""
    from runwire import Client  # noqa: PLC0415, `up` and `serve` need no HTTP library

    return Client(gateway_url(url), api_key, patience_s=_PATIENCE_S)


def finish(work: Coroutine[Any, Any, int]) -> None:
    """Run a command to its exit code."""
    try:
        code = asyncio.run(work)
    except Unreachable as error:
        print_error(f"{error}. Start one with `{program()} up`, or give --url")
        code = EXIT_UNREACHABLE
    except RunwireError as error:
        print_error(str(error))
        code = EXIT_UNREACHABLE
    except launch.CannotLaunch as error:
        print_error(str(error))
        code = EXIT_FAILED
    except (KeyboardInterrupt, launch.Stopped):
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def print_error(text: str) -> None:
    """Print an error for people."""
    print_line(Console(stderr=True), f"[red]runwire: [/red]{escape(text)}")


def print_line(console: Console, markup: str) -> None:
    """Print one line of markup as it is: it is neither wrapped nor highlighted."""
    console.print(markup, highlight=False, soft_wrap=True)


def program() -> str:
    """How this program was called, so that people can repeat it: it need not be on the path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m runwire"
    on_path = shutil.which("runwire")
    return "runwire" if on_path and called.resolve() == Path(on_path).resolve() else str(called)
