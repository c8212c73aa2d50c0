"""Commands of authors: make a project, of a tool or an agent; serve the tools of files."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from runwire import serving
from runwire.cli.frame import Found, command
from runwire.cli.printing import ERR, OUT, end, marked
from runwire.serving import server

commands = typer.Typer()
new = typer.Typer(no_args_is_help=True)
commands.add_typer(new, name="new")
_POLL_S = 0.5
_TEMPLATES = Path(__file__).parents[1] / "templates"
_PACKAGE = Path(__file__).parents[2]
_SDKS = in_wheel if (in_wheel := _PACKAGE / "_sdk").exists() else _PACKAGE.parent / "sdk"
"""Of other languages: in the wheel, or in the checkout. The image of the tools has neither."""
_SUFFIX = ".template"
"""Of the files of a template, so that they are none of this program."""
_COPIED = {".go", ".mod", ".sum", ".json", ".ts"}
_NOT_COPIED = re.compile("test|node_modules|dist|package-lock")
_PLACEHOLDER = "my_name"
Name = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and _, as names of functions have them.")]


@command(new)
def tool(
    name: Name,
    lang: Annotated[
        Literal["python", "typescript", "go", "shell"], typer.Option(help="What it is written in.")
    ] = "python",
) -> Found:
    """Make the folder NAME: a tool with its test, a Dockerfile and a README."""
    return _make(lang, name)


@command(new)
def agent(name: Name) -> Found:
    """Make the folder NAME: an agents file with its test, a Dockerfile and a README."""
    return _make("agent", name)


def _make(template: str, name: str) -> Found:
    folder = Path(name)
    if not (name.isascii() and name.isidentifier() and len(name) <= 64):  # noqa: PLR2004, of a tool's name
        raise typer.BadParameter(
            "it needs letters, digits and _, and begins with none of the digits", param_hint="NAME"
        )
    if folder.exists():
        raise typer.BadParameter(f"{folder} is there already", param_hint="NAME")
    made = []
    for source in sorted((_TEMPLATES / template).rglob(f"*{_SUFFIX}")):
        below = str(source.relative_to(_TEMPLATES / template)).removesuffix(_SUFFIX).replace(_PLACEHOLDER, name)
        target = folder / below
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text(encoding="utf-8").replace(_PLACEHOLDER, name), encoding="utf-8")
        if target.suffix == ".sh":
            target.chmod(0o755)
        made.append(str(target))
    if (sdk := _SDKS / template).exists():
        for source in (path for path in sdk.rglob("*") if path.suffix in _COPIED):
            part = source.relative_to(sdk)
            if _NOT_COPIED.search(str(part)):
                continue
            for target in (folder / "runwire" / part, *([folder / "go.sum"] * (source.suffix == ".sum"))):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())

    def show() -> None:
        OUT.print("\n".join(map(marked, made)))
        ERR.print(f"[dim]{marked(str(folder / 'README.md'))} says how to test and to serve it[/dim]")

    return Found({"made": made}, show)


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
        for remark in server.remarks(tools):
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
