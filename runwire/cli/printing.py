"""How commands print, read times, and end: texts and tables for people, JSON for programs, exit codes.

What people read has no control characters of models, tools and users.
"""

import json
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from runwire.errors import RunwireError, Unreachable

_NARROW_COLUMNS = 70
"""Below this width a table's rows take two lines."""
_MAX_SHOWN_CHARACTERS = 160
_UNIT = 1024
_UNAUTHORIZED = 401


class Exit(IntEnum):
    """Exit codes; `runwire.cli.app` says what each means."""

    FAILED = 1
    ERROR = 3
    INCOMPLETE = 4
    CANCELLED = 5
    UNREACHABLE = 6
    INTERRUPTED = 130


OUT = Console(emoji=False, highlight=False, soft_wrap=True)
"""Prints lines of markup as they are: neither wrapped nor highlighted."""
ERR = Console(emoji=False, highlight=False, soft_wrap=True, stderr=True)


def visible(text: str) -> str:
    """Text of a model, tool or user without what would control the terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def one_line(text: str) -> str:
    """The same as one line."""
    return visible(" ".join(text.split()))


def short(text: str, characters: int = _MAX_SHOWN_CHARACTERS) -> str:
    """Text cut to what fits beside a tool's name."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def marked(text: str) -> str:
    """Text of others as markup that shows it."""
    return escape(visible(text))


def json_text(value: Any, *, cut: bool = False) -> str:
    """A value as markup that shows it as JSON in one line, all of it or its beginning."""
    text = json.dumps(value, ensure_ascii=False)
    return marked(short(text) if cut else text)


def age_text(at: int) -> str:
    """How long ago a time in Unix ms was."""
    seconds = max(0, int(time.time() - at / 1000))
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _time_of(text: str) -> int:
    """The Unix ms of a time, or of as long ago. Raises BadParameter."""
    if ago := re.fullmatch(r"(\d+)(s|min|h|d)", text, re.ASCII):
        return int((time.time() - int(ago[1]) * {"s": 1, "min": 60, "h": 3600, "d": 86_400}[ago[2]]) * 1000)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise typer.BadParameter("give 10min, 2h or 3d, or a time as in 2026-12-24T18:00") from None


Since = Annotated[
    int | None,
    typer.Option(parser=_time_of, metavar="TIME", help="Nothing before it: 10min, 2h or 3d ago, or 2026-12-24T18:00."),
]


def time_text(at: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time in Unix ms as the time of day here."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime(form)


def size_text(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if size < _UNIT:
            return f"{size:.4g} {unit}"
        size /= _UNIT
    return f"{size:.4g} GiB"


def print_json(document: object) -> None:
    """Print one JSON document as a line, at once: a reader may wait for it."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_error(text: str) -> None:
    """Print an error for people."""
    ERR.print(f"[red]runwire: [/red]{marked(text)}")


def print_fields(fields: Iterable[tuple[str, str | None]], width: int) -> None:
    """Print a line for each field that has a text, the names in a column of this width."""
    for name, text in fields:
        if text:
            OUT.print(f"[bold]{name:<{width}}[/bold] {marked(text)}")


def print_table(rows: list[list[str]]) -> None:
    """Print rows, the first of which holds the names of the columns. The last column is cut to a terminal's width."""
    widths = [max(map(cell_len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    if OUT.is_terminal and OUT.width < _NARROW_COLUMNS:
        lines = [part for row in rows[1:] for part in (row[0], f"  {' · '.join(filter(None, row[1:]))}")]
    else:
        lines = ["  ".join([*map(set_cell_size, row, widths), row[-1]]) for row in rows]
    for line in lines:
        text = Text(line)
        if OUT.is_terminal:
            text.truncate(OUT.width, overflow="ellipsis")
        OUT.print(text)


def program() -> str:
    """How this program was called, so that people can repeat it: it need not be on the path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m runwire"
    on_path = shutil.which("runwire")
    return "runwire" if on_path and called.resolve() == Path(on_path).resolve() else str(called)


def end(work: Callable[[], int], *expected: type[Exception], output: str = "text") -> NoReturn:
    """Run a command to its exit code, and print the error that ended it. `expected`: further errors for people.

    `output`: anything but "text" has the refusal of a gateway on stdout too, as JSON.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = work()
    except Unreachable as error:
        print_error(f"{error}. Start one with `{program()} up`, or give --url")
        _print_problem(error, output)
        code = Exit.UNREACHABLE
    except RunwireError as error:
        hint = " Give one with --api-key or RUNWIRE_API_KEY" if error.status == _UNAUTHORIZED else ""
        print_error(f"{error}{hint}")
        _print_problem(error, output)
        code = Exit.UNREACHABLE
    except expected as error:
        print_error(str(error))
        code = Exit.FAILED
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    raise typer.Exit(code)


def _print_problem(error: RunwireError, output: str) -> None:
    if output != "text":
        fields = {name: getattr(error, name) for name in ("code", "status", "detail", "errors", "run_id")}
        print_json({"error": fields})
