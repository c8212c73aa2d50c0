"""Commands on this machine: start everything, print how to reach it, show its logs.

`up` runs as long as the system does, so this module imports no library of HTTP or NATS.
"""

import asyncio
import contextlib
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from runwire.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, end
from runwire.cli.printing import OUT, marked, print_error, program
from runwire.cli.setting_names import misspelt
from runwire.local import launch
from runwire.local.data_folder import data_dir, nats_login, remembered

commands = typer.Typer()

DEMO_QUESTION = "Which region grew most in sales.csv? Draw a chart."
_POLL_S = 0.2
_TAIL_BYTES = 1 << 20


@commands.command()
def up(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the gateway on loopback; 0: any free one.")] = 8080,
    tools: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True, dir_okay=False, help="A Python file with tools; may be repeated. Default: the examples."
        ),
    ] = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Serve no tools.")] = False,
    copies: Annotated[
        int, typer.Option(min=1, max=16, help="Processes of the planner and of the tool runner to start.")
    ] = 1,
    planners: Annotated[int | None, typer.Option(min=1, max=16, help="The same, of the planner alone.")] = None,
    tool_runners: Annotated[int | None, typer.Option(min=1, max=16, help="And of the tool runner alone.")] = None,
    sync: Annotated[
        Literal["always", "1s"],
        typer.Option(
            envvar="RUNWIRE_SYNC",
            help="When NATS syncs to the disk. always: every acknowledged write survives a power cut; "
            "1s: faster, and a power cut may lose the last second.",
        ),
    ] = "always",
    trust_tools: Annotated[
        bool,
        typer.Option(
            envvar="RUNWIRE_TRUST_TOOLS",
            help="Offer every specification that a tool announces. --no-trust-tools: one that changed waits for "
            "`runwire tools accept`.",
        ),
    ] = True,
    demo: Annotated[bool, typer.Option("--demo", help="Run one question and show its events.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Stop after the demo's answer.")] = False,
) -> None:
    """Start everything on this machine and stay in the foreground. Data is kept under RUNWIRE_DATA_DIR (.runwire)."""
    for warning in misspelt(os.environ):
        _say(f"[yellow]{marked(warning)}[/yellow]")

    def run() -> int:
        examples = launch.example_tools()  # refuses what is no checkout, whatever is served
        files = [] if no_tools else tools or examples
        plan = launch.Plan(data_dir(), port, files, planners or copies, tool_runners or copies, sync, trust_tools)
        try:
            return asyncio.run(_run(plan, demo=demo or once, once=once))
        except launch.Stopped:
            return EXIT_INTERRUPTED

    end(run, launch.CannotLaunch)


async def _run(plan: launch.Plan, *, demo: bool, once: bool) -> int:
    """Start everything, and stop it after Ctrl-C or SIGTERM."""
    stop, code = launch.stop_event(), 0
    _say("[dim]starting nats-server, an S3 server, planner, tool_runner, artifact_store, gateway and tools …[/dim]")
    async with launch.running(plan, lambda text: _say(f"[yellow]{marked(text)}[/yellow]"), stop) as endpoints:
        where = f"NATS {endpoints['nats_url']}, sync {endpoints['sync']} · data {plan.data}"
        _say(f"gateway [bold]{endpoints['url']}[/bold] · {marked(where)}")
        if demo:
            code = await _demo(endpoints["url"], stop)
        if not once:
            _say(f'\n[dim]Ctrl-C stops everything. In another terminal:[/dim] {program()} run "What is 17*23?"')
            await stop.wait()
            code = 0
        _say("[dim]stopping …[/dim]")
    return code


async def _demo(url: str, stop: asyncio.Event) -> int:
    """Run the demo's question, unless everything is stopped before."""
    from runwire.cli.commands.runs import ask  # noqa: PLC0415, see above

    _say(f"\n[bold cyan]? {DEMO_QUESTION}[/bold cyan]")
    running, stopped = asyncio.create_task(ask(url, DEMO_QUESTION)), asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    return running.result() if running.done() else EXIT_INTERRUPTED


def _say(markup: str) -> None:
    """Print a line at once. A reader that has gone away is no reason to stop."""
    with contextlib.suppress(BrokenPipeError, SystemExit):  # rich ends the program then
        OUT.print(markup)
        sys.stdout.flush()


@commands.command()
def env() -> None:
    """Print how to reach the NATS server that `runwire up` started here, for tools in other languages.

    Use it as eval "$(runwire env)". The password is part of the output.
    """
    url = remembered(data_dir()).get("nats_url")
    if url is None:
        print_error(f"nothing runs from {data_dir()}. Start it with `{program()} up`, or set RUNWIRE_DATA_DIR")
        raise typer.Exit(EXIT_FAILED)
    login = nats_login(data_dir(), url)
    for prefix in ("RUNWIRE_NATS", "NATS"):
        for name, value in (("URL", url), *((name.upper(), value) for name, value in login.items())):
            sys.stdout.write(f"export {prefix}_{name}={shlex.quote(value)}\n")


@commands.command()
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
    read = {path: _print_lines(path, width, max(0, path.stat().st_size - _TAIL_BYTES), lines) for path in files}
    while follow:
        sys.stdout.flush()
        time.sleep(_POLL_S)
        for path in _chosen(folder, service or []):
            read[path] = _print_lines(path, width, read.get(path, 0))


def _chosen(folder: Path, services: list[str]) -> list[Path]:
    """The logs of these services, `planner` meaning all of `planner-1`, `planner-2`; without any, all logs."""
    return [
        path
        for path in sorted(folder.glob("*.log"))
        if not services or any(path.stem == each or path.stem.startswith(f"{each}-") for each in services)
    ]


def _print_lines(path: Path, width: int, start: int, newest: int | None = None) -> int:
    """Print the complete lines from `start` on, or the `newest` of them; return where the incomplete one begins.

    A log that has become shorter is read from its beginning.
    """
    prefix = f"{path.stem:<{width}} | " if width else ""
    with path.open("rb") as log:
        log.seek(start if log.seek(0, os.SEEK_END) >= start else 0)
        complete = log.read().splitlines(keepends=True)
        rest = len(complete.pop()) if complete and not complete[-1].endswith(b"\n") else 0
        for line in complete[len(complete) - newest if newest is not None and newest < len(complete) else 0 :]:
            sys.stdout.write(f"{prefix}{line[:-1].decode(errors='replace')}\n")
        return log.tell() - rest
