"""The command that serves tools."""

import os
from pathlib import Path
from typing import Annotated

import typer

from runwire import serving

commands = typer.Typer()


@commands.command()
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
    health = health_file or os.environ.get("RUNWIRE_HEALTH_FILE")
    serving.main(files, nats_url, credentials=credentials, health_file=health)
