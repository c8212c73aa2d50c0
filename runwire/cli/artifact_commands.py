"""Commands on artifacts: list those of a run or session, get the bytes of one."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from runwire.cli.common import Format, Json, Key, Output, Url, client_of, finish, one_line, print_json, print_table
from runwire.cli.exit_codes import print_error

if TYPE_CHECKING:
    from runwire.cli.run_artifacts import RunArtifact

_UNIT = 1024


def artifacts(
    run_id: Annotated[str | None, typer.Argument(help="Default: those of --session.")] = None,
    session: Annotated[str | None, typer.Option(help="Those of a session.")] = None,
    own_id: Annotated[str | None, typer.Option(help="The newest one to which a tool gave this id.")] = None,
    skill: Annotated[str | None, typer.Option(help="Those made for a skill.")] = None,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    as_json: Json = False,
) -> None:
    """List the artifacts of a run or session. `runwire fetch` gets one that has an id; others are in the payload."""
    from runwire.cli.run_artifacts import artifacts_of, stored_artifacts  # noqa: PLC0415, see `client_of`

    if (run_id is None) == (session is None):
        raise typer.BadParameter("give a run, or --session")

    async def work() -> int:
        async with client_of(url, api_key) as client:
            if run_id is not None and own_id is None and skill is None:
                found = await artifacts_of(client, run_id)
            else:
                stored = stored_artifacts(client, run_id, session, own_id=own_id, skill_id=skill)
                found = [each async for each in stored]
        if as_json or output is not Output.text:
            print_json([artifact.described() for artifact in found])
        elif found:
            print_table([["name", "type", "size", "id", "id of its tool"], *map(_row, found)])
        else:
            print_error("there are no such artifacts")
        return 0

    finish(work())


def _row(artifact: "RunArtifact") -> list[str]:
    own_id = one_line(artifact.own_id) if artifact.own_id else "-"
    return [one_line(artifact.name), artifact.kind, size_text(artifact.size), artifact.artifact_id or "-", own_id]


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
