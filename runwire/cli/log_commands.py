"""`runwire logs`: what the processes of `runwire up` have written, from its data folder."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from runwire.cli.exit_codes import EXIT_FAILED, print_error
from runwire.local.data_folder import data_dir

_POLL_S = 0.2
_TAIL_BYTES = 1 << 20


def logs(
    service: Annotated[
        list[str] | None,
        typer.Option("-s", "--service", help="Of this process only, such as planner or tools-table; may be repeated."),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is written, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last lines of each.")] = 20,
) -> None:
    """Show the logs of the processes that `runwire up` has started from this data folder."""
    folder = data_dir() / "logs"
    files = _chosen(folder, service or [])
    if not files:
        known = ", ".join(path.stem for path in _chosen(folder, []))
        print_error(
            f"{' and '.join(service or [])} has no log in {folder}; there are {known}"
            if known
            else f"there are no logs in {folder}: `runwire up` writes them, to the folder that RUNWIRE_DATA_DIR names. "
            "With docker compose: docker compose logs [--follow] [SERVICE]"
        )
        raise typer.Exit(EXIT_FAILED)
    width = max(len(path.stem) for path in files) if len(files) > 1 or follow else 0
    read = {path: _print_tail(path, lines, width) for path in files}
    while follow:
        sys.stdout.flush()
        time.sleep(_POLL_S)
        for path in _chosen(folder, service or []):
            read[path] = _print_new(path, read.get(path, 0), width)


def _chosen(folder: Path, services: list[str]) -> list[Path]:
    """The logs of these services, `planner` meaning all of `planner-1`, `planner-2`; without any, all logs."""
    return [
        path
        for path in sorted(folder.glob("*.log"))
        if not services or any(path.stem == each or path.stem.startswith(f"{each}-") for each in services)
    ]


def _print_tail(path: Path, lines: int, width: int) -> int:
    """Print the last lines of a log; return how many bytes of it are read."""
    with path.open("rb") as log:
        log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
        complete = log.read().rpartition(b"\n")
        _print_lines(path, complete[0].split(b"\n")[-lines:] if lines and complete[1] else [], width)
        return log.tell() - len(complete[2])


def _print_new(path: Path, read: int, width: int) -> int:
    """Print the lines that were completed since; a log that has become shorter is read from its beginning."""
    with path.open("rb") as log:
        log.seek(read if log.seek(0, 2) >= read else 0)
        complete = log.read().rpartition(b"\n")
        _print_lines(path, complete[0].split(b"\n") if complete[1] else [], width)
        return log.tell() - len(complete[2])


def _print_lines(path: Path, lines: list[bytes], width: int) -> None:
    prefix = f"{path.stem:<{width}} | " if width else ""
    for line in lines:
        sys.stdout.write(f"{prefix}{line.decode(errors='replace')}\n")
