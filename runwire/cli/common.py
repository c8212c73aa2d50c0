"""What the commands share: options, messages, and the client of the gateway."""

import json
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from runwire.cli.exit_codes import exit_code, print_error
from runwire.local.data_folder import data_dir, remembered

if TYPE_CHECKING:
    from pydantic import BaseModel

    from runwire import Client

M = TypeVar("M", bound="BaseModel")

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


Json = Annotated[bool, typer.Option("--json", help="The same as -o json.")]

_NARROW_COLUMNS = 70
"""Below this width a table's rows take two lines."""


def gateway_url(url: str | None) -> str:
    """The gateway that the user named, else the one of the data folder, else the default."""
    return url or remembered(data_dir()).get("url") or _DEFAULT_URL


def client_of(url: str | None, api_key: str | None) -> "Client":
    """A client of the gateway."""
    from runwire import Client  # noqa: PLC0415, `up` and `serve` need no HTTP library

    return Client(gateway_url(url), api_key, patience_s=_PATIENCE_S)


def finish(work: Coroutine[Any, Any, int]) -> None:
    """Run a command to its exit code."""
    raise typer.Exit(exit_code(work))


def restart(command: tuple[str, ...], options: dict[str, Any]) -> NoReturn:
    """Replace this process by one without the libraries of the command line: it will run for long."""
    called = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    os.execv(sys.executable, [sys.executable, *called, *command, json.dumps(options)])  # noqa: S606, this program


def print_line(console: Console, markup: str) -> None:
    """Print one line of markup as it is: it is neither wrapped nor highlighted."""
    console.print(markup, highlight=False, soft_wrap=True)


def print_json(document: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def print_list(
    found: Sequence[M], columns: list[str], row: Callable[[M], list[str]], nouns: str, *, is_json: bool
) -> None:
    """Print a list as JSON, or as a table for people. `nouns`: what an empty one has none of."""
    if is_json:
        print_json([each.model_dump(mode="json") for each in found])
    elif found:
        print_table([columns, *map(row, found)])
    else:
        print_error(f"there are no {nouns}")


def visible(text: str) -> str:
    """Text of a model, tool or user without what would control the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def one_line(text: str) -> str:
    """The same as one line."""
    return visible(" ".join(text.split()))


def age_text(at: int) -> str:
    """How long ago a time in Unix ms was."""
    seconds = max(0, int(time.time() - at / 1000))
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def print_table(rows: list[list[str]]) -> None:
    """Print rows, the first of which holds the names of the columns. The last column is cut to a terminal's width."""
    console = Console()
    widths = [max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    if console.is_terminal and console.width < _NARROW_COLUMNS:
        lines = [part for row in rows[1:] for part in (row[0], f"  {' · '.join(filter(None, row[1:]))}")]
    else:
        lines = ["  ".join([*map(set_cell_size, row, widths), row[-1]]) for row in rows]
    for line in lines:
        text = Text(line)
        if console.is_terminal:
            text.truncate(console.width, overflow="ellipsis")
        console.print(text, soft_wrap=True)
