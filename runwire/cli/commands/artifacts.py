"""Commands on artifacts: list those of a run or session, get the bytes of one."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from runwire.cli.frame import Found, asks
from runwire.cli.printing import one_line, print_error, print_table, size_text
from runwire.cli.views.artifacts import RunArtifact, artifacts_of, stored_artifacts
from runwire.client import Client

commands = typer.Typer()


@asks(commands)
async def artifacts(
    client: Client,
    run_id: Annotated[str | None, typer.Argument(help="Default: those of --session.")] = None,
    session: Annotated[str | None, typer.Option(help="Those of a session.")] = None,
    own_id: Annotated[str | None, typer.Option(help="The newest one to which a tool gave this id.")] = None,
    skill: Annotated[str | None, typer.Option(help="Those made for a skill.")] = None,
) -> Found:
    """List the artifacts of a run or session. `runwire fetch` gets one that has an id; others are in the payload."""
    if (run_id is None) == (session is None):
        raise typer.BadParameter("give a run, or --session")
    if run_id is not None and own_id is None and skill is None:
        found = await artifacts_of(client, run_id)
    else:
        found = [each async for each in stored_artifacts(client, run_id, session, own_id=own_id, skill_id=skill)]

    def show() -> None:
        if found:
            print_table([["name", "type", "size", "id", "id of its tool"], *map(_row, found)])
        else:
            print_error("there are no such artifacts")

    return Found([artifact.described() for artifact in found], show)


def _row(artifact: RunArtifact) -> list[str]:
    own_id = one_line(artifact.own_id) if artifact.own_id else "-"
    return [one_line(artifact.name), artifact.kind, size_text(artifact.size), artifact.artifact_id or "-", own_id]


@asks(commands)
async def fetch(
    client: Client,
    artifact_id: str,
    file: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file. Default: stdout.")] = None,
) -> None:
    """Get the bytes of an artifact."""
    pieces = client.fetch(artifact_id)
    first = await anext(pieces, b"")  # An artifact that does not exist leaves no file.
    with file.open("wb") if file else os.fdopen(os.dup(sys.stdout.fileno()), "wb") as target:
        target.write(first)
        async for piece in pieces:
            target.write(piece)
