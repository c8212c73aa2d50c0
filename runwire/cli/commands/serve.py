"""The command that serves tools."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from runwire import serving
from runwire.cli.exit_codes import end
from runwire.cli.printing import ERR, OUT, marked
from runwire.serving import loading, server

commands = typer.Typer()
_POLL_S = 0.5


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
    check: Annotated[bool, typer.Option("--check", help="Only load the files, and say what a model lacks.")] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="Serve anew when a Python file beside them or below changes.")
    ] = False,
) -> None:
    """Serve the tools of Python files over NATS."""
    if check:
        tools = server.tools_of(files)
        for remark in loading.remarks(tools):
            ERR.print(f"[yellow]! {marked(remark)}[/yellow]")
        OUT.print(f"[green]✓[/green] {marked(', '.join(tool.name for tool in tools))}")
        return
    if reload:
        end(lambda: _serve_again(files, nats_url, credentials, health_file))
    health = health_file or os.environ.get("RUNWIRE_HEALTH_FILE")
    serving.main(files, nats_url, credentials=credentials, health_file=health)


def _serve_again(files: list[Path], *options: Path | str | None) -> int:
    """Serve in a process of its own, again after each change: what the files import is loaded anew too."""
    named = zip(("--nats-url", "--credentials", "--health-file"), options, strict=True)
    given = [text for name, value in named if value is not None for text in (name, str(value))]
    command = [sys.executable, "-P", "-m", "runwire", "serve", *map(str, files), *given]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    while True:
        seen = _changed_at(files)
        with subprocess.Popen(command) as process:  # noqa: S603, its own program
            try:
                while _changed_at(files) == seen:
                    time.sleep(_POLL_S)
            finally:
                process.terminate()
        ERR.print("[dim]a file has changed: serving anew[/dim]")


def _changed_at(files: list[Path]) -> dict[Path, int]:
    folders = {file.resolve().parent for file in files}
    found = {}
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        with contextlib.suppress(OSError):  # It was removed meanwhile.
            found[path] = path.stat().st_mtime_ns
    return found
