"""Commands on artifacts: list those of a run, get the bytes of one."""

import os
import sys
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from runwire.cli.common import Format, Json, Key, Output, Url, client_of, finish, one_line, print_json, print_table
from runwire.cli.exit_codes import print_error

_UNIT = 1024


def artifacts(
    run_id: str, url: Url = None, api_key: Key = None, output: Format = Output.text, as_json: Json = False
) -> None:
    """List the artifacts of a run. `runwire fetch` gets one that has an id; the others are in the run's payload."""
    from runwire.cli.run_artifacts import artifacts_of  # noqa: PLC0415, see `client_of`

    async def work() -> int:
        async with client_of(url, api_key) as client:
            found = await artifacts_of(client, run_id)
        if as_json or output is not Output.text:
            print_json([artifact.described() for artifact in found])
        elif found:
            rows = [[one_line(each.name), each.kind, size_text(each.size), each.artifact_id or "-"] for each in found]
            print_table([["name", "type", "size", "id"], *rows])
        else:
            print_error(f"the run {run_id} has no artifacts")
        return 0

    finish(work())


def size_text(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if size < _UNIT:
            return f"{size:.4g} {unit}"
        size /= _UNIT
    return f"{size:.4g} GiB"


def fetch(
    artifact_id: str,
    file: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file. Default: stdout.")] = None,
    url: Url = None,
    api_key: Key = None,
) -> None:
    """Get the bytes of an artifact."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            pieces = client.fetch(artifact_id)
            first = await anext(pieces, b"")  # An artifact that does not exist leaves no file.
            with _opened(file) as target:
                target.write(first)
                async for piece in pieces:
                    target.write(piece)
        return 0

    finish(work())


def _opened(file: Path | None) -> BinaryIO:
    return file.open("wb") if file else os.fdopen(os.dup(sys.stdout.fileno()), "wb")
