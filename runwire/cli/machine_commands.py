"""Commands on this machine: start everything, print how to reach it, check it."""

import asyncio
import json
import os
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from runwire.cli.common import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    Format,
    Key,
    Output,
    Url,
    finish,
    gateway_url,
    print_error,
    print_line,
    program,
)
from runwire.cli.run_commands import start_and_show
from runwire.cli.setting_names import misspelt
from runwire.local import launch
from runwire.local.data_folder import nats_login

DEMO_QUESTION = "Which region grew most in sales.csv? Draw a chart."
_MARKS = {"ok": "[green]✓[/green]", "warning": "[yellow]![/yellow]", "failed": "[red]✗[/red]"}


class Sync(StrEnum):
    """When the embedded NATS server syncs its files to the disk."""

    always = "always"
    every_second = "1s"


def up(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the gateway on loopback; 0: any free one.")] = 8080,
    tools: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True, dir_okay=False, help="A Python file with tools; may be repeated. Default: the examples."
        ),
    ] = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Serve no tools.")] = False,
    planners: Annotated[int, typer.Option(min=1, max=16, help="Planner processes to start.")] = 1,
    tool_runners: Annotated[int, typer.Option(min=1, max=16, help="Tool runner processes to start.")] = 1,
    sync: Annotated[
        Sync,
        typer.Option(
            envvar="RUNWIRE_SYNC",
            help="When NATS syncs to the disk. always: every acknowledged write survives a power cut; "
            "1s: faster, and a power cut may lose the last second.",
        ),
    ] = Sync.always,
    demo: Annotated[bool, typer.Option("--demo", help="Run one question and show its events.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Stop after the demo's answer.")] = False,
) -> None:
    """Start everything on this machine and stay in the foreground. Data is kept under RUNWIRE_DATA_DIR (.runwire)."""

    async def work() -> int:
        examples = launch.example_tools()  # refuses what is no checkout, whatever is served
        files = [] if no_tools else tools or examples
        plan = launch.Plan(launch.data_dir(), port, files, planners, tool_runners, sync.value)
        return await _up(plan, demo=demo or once, once=once)

    finish(work())


async def _up(plan: launch.Plan, *, demo: bool, once: bool) -> int:
    console = Console()
    stop = launch.stop_event()
    for warning in misspelt(os.environ):
        _warn(console, warning)
    console.print(
        "[dim]starting nats-server, an S3 server, planner, tool_runner, artifact_store, gateway and tools …[/dim]"
    )
    async with launch.running(plan, lambda text: _warn(console, text), stop) as endpoints:
        url, nats_url = endpoints["url"], endpoints["nats_url"]
        print_line(
            console,
            f"gateway [bold]{url}[/bold] · NATS {nats_url}, sync {plan.sync} · data {escape(str(plan.data))}",
        )
        code = await _demo(console, url, stop) if demo else 0
        if not once:
            example = f'{escape(program())} run "What is 17*23?"'
            console.print(f"\n[dim]Ctrl-C stops everything. In another terminal:[/dim] {example}", soft_wrap=True)
            await stop.wait()
            code = 0
        console.print("[dim]stopping …[/dim]")
    return code


async def _demo(console: Console, url: str, stop: asyncio.Event) -> int:
    """Run the demo's question, unless everything is stopped before."""
    console.print(f"\n[bold cyan]? {DEMO_QUESTION}[/bold cyan]")
    running = asyncio.create_task(start_and_show(url, None, DEMO_QUESTION, {}, Output.text))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    return running.result() if running.done() else EXIT_INTERRUPTED


def _warn(console: Console, text: str) -> None:
    print_line(console, f"[yellow]{escape(text)}[/yellow]")


def env() -> None:
    """Print how to reach the NATS server that `runwire up` started here, for tools in other languages.

    Use it as eval "$(runwire env)". The password is part of the output.
    """
    url = launch.remembered(launch.data_dir()).get("nats_url")
    if url is None:
        print_error(f"nothing runs from {launch.data_dir()}. Start it with `{program()} up`, or set RUNWIRE_DATA_DIR")
        raise typer.Exit(EXIT_FAILED)
    login = nats_login(launch.data_dir(), url)
    for prefix in ("RUNWIRE_NATS", "NATS"):
        for name, value in (("URL", url), *((name.upper(), value) for name, value in login.items())):
            sys.stdout.write(f"export {prefix}_{name}={shlex.quote(value)}\n")


def doctor(url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """Check this machine, the gateway, NATS, the model and the tools; say how to fix what is wrong."""
    from runwire.cli.checks import examine  # noqa: PLC0415, `up` needs no HTTP library

    async def work() -> int:
        checks = await examine(gateway_url(url), api_key, os.environ)
        if output is not Output.text:
            sys.stdout.write(json.dumps([check.__dict__ for check in checks], ensure_ascii=False) + "\n")
        else:
            console = Console()
            for check in checks:
                print_line(console, f"{_MARKS[check.status]} {check.name}: {escape(check.finding)}")
                if check.mend:
                    print_line(console, f"  [dim]{escape(check.mend)}[/dim]")
        return EXIT_FAILED if any(check.status == "failed" for check in checks) else 0

    finish(work())
