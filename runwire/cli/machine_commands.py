"""Commands on this machine: start everything, print how to reach it, check it."""

import os
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from runwire.cli.check import print_checks
from runwire.cli.common import Format, Key, Output, Url, finish, gateway_url, print_line, restart
from runwire.cli.entry_point import LAUNCH
from runwire.cli.exit_codes import EXIT_FAILED, print_error, program
from runwire.cli.setting_names import misspelt
from runwire.local.data_folder import data_dir, nats_login, remembered


class Sync(StrEnum):
    """When the embedded NATS server syncs its files to the disk."""

    always = "always"
    every_second = "1s"


TrustTools = Annotated[
    bool,
    typer.Option(
        envvar="RUNWIRE_TRUST_TOOLS",
        help="Offer every specification that a tool announces. --no-trust-tools: one that changed waits for "
        "`runwire tools accept`.",
    ),
]


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
        Sync,
        typer.Option(
            envvar="RUNWIRE_SYNC",
            help="When NATS syncs to the disk. always: every acknowledged write survives a power cut; "
            "1s: faster, and a power cut may lose the last second.",
        ),
    ] = Sync.always,
    trust_tools: TrustTools = True,
    demo: Annotated[bool, typer.Option("--demo", help="Run one question and show its events.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Stop after the demo's answer.")] = False,
) -> None:
    """Start everything on this machine and stay in the foreground. Data is kept under RUNWIRE_DATA_DIR (.runwire)."""
    _warn_of_settings()
    options = {
        "port": port,
        "tools": [] if no_tools else [str(file) for file in tools or ()] or None,
        "planners": planners or copies,
        "tool_runners": tool_runners or copies,
        "sync": sync.value,
        "trust_tools": trust_tools,
        "demo": demo or once,
        "once": once,
    }
    restart(LAUNCH, options)


def _warn_of_settings() -> None:
    console = Console()
    for warning in misspelt(os.environ):
        print_line(console, f"[yellow]{escape(warning)}[/yellow]")


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


def doctor(url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """Check this machine, the gateway, NATS, the model and the tools; say how to fix what is wrong."""
    from runwire.cli.checks import examine  # noqa: PLC0415, `up` needs no HTTP library

    async def work() -> int:
        checks = await examine(gateway_url(url), api_key, os.environ)
        print_checks(checks, as_json=output is not Output.text)
        return EXIT_FAILED if any(check.status == "failed" for check in checks) else 0

    finish(work())
