"""Commands on this machine: start everything, print how to reach it, show its logs.

`up` runs as long as the system does, so this module imports no library of HTTP or NATS.
"""

import asyncio
import contextlib
import json
import os
import re
import shlex
import sys
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from runwire.cli.printing import OUT, Exit, Since, end, marked, print_error, program, time_text
from runwire.local import launch
from runwire.local.configuration import misspelt
from runwire.local.data_folder import data_dir, nats_login, remembered

commands = typer.Typer()

DEMO_QUESTION = "Which region grew most in sales.csv? Draw a chart."
_POLL_S = 0.2
_TAIL_BYTES, _SEARCHED_BYTES = 1 << 20, 64 << 20


@commands.command()
def up(
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="RUNWIRE_PORT", help="Of the gateway on loopback; 0: any free one.")
    ] = 8080,
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
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill the planner in the middle of the demo's answer: it goes on.")
    ] = False,
) -> None:
    """Start everything on this machine and stay in the foreground. Data is kept under RUNWIRE_DATA_DIR (.runwire)."""
    for warning in misspelt(os.environ):
        _say(f"[yellow]{marked(warning)}[/yellow]")

    def run() -> int:
        examples = launch.example_tools()  # refuses what is no checkout, whatever is served
        # A file of somebody else may fail without the others; ours cost the memory of one process.
        files = [] if no_tools else [[each] for each in tools or ()] or [examples]
        plan = launch.Plan(data_dir(), port, files, planners or copies, tool_runners or copies, sync, trust_tools)
        try:
            return asyncio.run(_run(plan, demo=demo or once or kill, once=once, kill=kill))
        except launch.Stopped:
            return Exit.INTERRUPTED

    end(run, launch.CannotLaunch)


async def _run(plan: launch.Plan, *, demo: bool, once: bool, kill: bool) -> int:
    """Start everything, and stop it after Ctrl-C or SIGTERM."""
    stop, code = launch.stop_event(), 0
    children: list[launch.Child] = []
    _say("[dim]starting nats-server, an S3 server, planner, tool_runner, artifact_store, gateway and tools …[/dim]")

    def report(text: str) -> None:
        _say(f"[yellow]{marked(text)}[/yellow]")

    def on_ready(child: launch.Child) -> None:
        children.append(child)
        _say(f"[dim]✓ {marked(child.name)}[/dim]")

    async with launch.running(plan, report, stop, on_ready) as endpoints:
        where = f"NATS {endpoints['nats_url']}, sync {endpoints['sync']} · data {plan.data}"
        _say(f"playground [bold]{endpoints['url']}/playground[/bold]")
        _say(f"gateway [bold]{endpoints['url']}[/bold] · {marked(where)}")
        if demo:
            planners = [child for child in children if kill and child.name.startswith("planner")]
            code = await _demo(endpoints["url"], stop, planners)
        if not once:
            _say(f'\n[dim]Ctrl-C stops everything. In another terminal:[/dim] {program()} run "What is 17*23?"')
            await stop.wait()
            code = 0
        _say("[dim]stopping …[/dim]")
    return code


async def _demo(url: str, stop: asyncio.Event, killed: list[launch.Child]) -> int:
    """Run the demo's question, unless everything is stopped before; kill these processes once the answer begins."""
    from runwire.cli.commands.runs import ask  # noqa: PLC0415, see above

    def remark(event: dict[str, Any]) -> str | None:
        if not killed or event["type"] != "chunk":
            return None
        names = " and ".join(child.name for child in killed)
        while killed:
            killed.pop().kill()
        return f"{names} was killed here (SIGKILL); the next process goes on"

    _say(f"\n[bold cyan]? {DEMO_QUESTION}[/bold cyan]")
    running, stopped = asyncio.create_task(ask(url, DEMO_QUESTION, remark)), asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    return running.result() if running.done() else Exit.INTERRUPTED


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
        raise typer.Exit(Exit.FAILED)
    login = nats_login(data_dir(), url)
    for prefix in ("RUNWIRE_NATS", "NATS"):
        for name, value in (("URL", url), *((name.upper(), value) for name, value in login.items())):
            sys.stdout.write(f"export {prefix}_{name}={shlex.quote(value)}\n")


@commands.command()
def logs(
    service: Annotated[
        list[str] | None,
        typer.Option("-s", "--service", help="Of this process only, such as planner or tools-demo; may be repeated."),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is written, until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many of the last lines.")] = 50,
    run: Annotated[str, typer.Option(help="Only lines that name this run, or a beginning of its id.")] = "",
    level: Annotated[Literal["debug", "info", "warning", "error"], typer.Option(help="Nothing below it.")] = "debug",
    since: Since = None,
    output: Annotated[
        Literal["text", "jsonl"], typer.Option("-o", "--output", help="text for people, jsonl as it was written.")
    ] = "text",
) -> None:
    """Show the logs of the processes that `runwire up` has started from this data folder, by time."""
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
        raise typer.Exit(Exit.FAILED)
    read = {path: max(0, path.stat().st_size - (_SEARCHED_BYTES if run or since else _TAIL_BYTES)) for path in files}
    newest: int | None = lines
    while True:
        found: list[_Line] = []
        for path in _chosen(folder, service or []):
            written, read[path] = _written(path, read.get(path, 0))
            found += written
        wanted = [
            line
            for line in sorted(found, key=lambda line: line.at)
            if run in line.text and line.at >= (since or 0) and line.level >= _LEVELS[level[:3]]
        ]
        for line in wanted[len(wanted) - newest if newest is not None and newest < len(wanted) else 0 :]:
            if output == "text":
                OUT.print(line.markup(max(len(path.stem) for path in read)))
            else:
                sys.stdout.write(f"{line.text}\n")
        if not follow:
            return
        newest = None
        sys.stdout.flush()
        time.sleep(_POLL_S)


_LEVELS = {"trc": 10, "deb": 10, "dbg": 10, "inf": 20, "not": 20, "war": 30, "wrn": 30, "err": 40, "cri": 50, "ftl": 50}
"""First letters of a level -> its weight, as services, tools, nats-server and rclone write them."""
_STYLES = {30: "yellow", 40: "red", 50: "bold red"}
_PLAIN = re.compile(r"(?:\[\d+\] )?(\d{4})[-/](\d\d)[-/](\d\d) (\d\d:\d\d:\d\d)\S* \[?([A-Za-z]{3})\w*\W*(.*)")


@dataclass(frozen=True)
class _Line:
    """A line of a log. `at`: Unix ms."""

    service: str
    at: int
    level: int
    text: str

    def markup(self, width: int) -> str:
        """What people read: the time, the process, what happened, and its fields."""
        said = self.text
        if said.startswith("{"):
            with contextlib.suppress(ValueError):
                fields = json.loads(said)
                hidden = {"event", "level", "timestamp", "service"}
                pairs = [f"{name}={value}" for name, value in fields.items() if name not in hidden]
                said = " ".join([str(fields.get("event")), *pairs])
        elif found := _PLAIN.match(said):
            said = found[6]
        style = _STYLES.get(self.level, "default")
        return f"[dim]{time_text(self.at, '%H:%M:%S')} {self.service:<{width}}[/dim] [{style}]{marked(said)}[/{style}]"


def _parsed(service: str, text: str, before: _Line | None) -> _Line:
    """A line; one without a time, as of a traceback, belongs to the line before it."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        if text.startswith("{"):
            fields = json.loads(text)
            at = datetime.fromisoformat(fields["timestamp"])
            return _Line(service, int(at.timestamp() * 1000), _LEVELS[fields["level"][:3]], text)
        if found := _PLAIN.match(text):
            at = datetime.fromisoformat(f"{found[1]}-{found[2]}-{found[3]}T{found[4]}").astimezone()
            return _Line(service, int(at.timestamp() * 1000), _LEVELS[found[5][:3].lower()], text)
    return replace(before, text=text) if before else _Line(service, 0, _LEVELS["inf"], text)


def _chosen(folder: Path, services: list[str]) -> list[Path]:
    """The logs of these services, `planner` meaning all of `planner-1`, `planner-2`; without any, all logs."""
    return [
        path
        for path in sorted(folder.glob("*.log"))
        if not services or any(path.stem == each or path.stem.startswith(f"{each}-") for each in services)
    ]


def _written(path: Path, start: int) -> tuple[list[_Line], int]:
    """Return the complete lines from `start` on, and where the incomplete one begins.

    A log that has become shorter is read from its beginning.
    """
    found: list[_Line] = []
    with path.open("rb") as log:
        log.seek(start if log.seek(0, os.SEEK_END) >= start else 0)
        complete = log.read().splitlines(keepends=True)
        rest = len(complete.pop()) if complete and not complete[-1].endswith(b"\n") else 0
        for line in complete:
            found.append(_parsed(path.stem, line[:-1].decode(errors="replace"), found[-1] if found else None))
        return found, log.tell() - rest
