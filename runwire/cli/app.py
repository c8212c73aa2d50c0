"""The command line: parses, calls, and says how it went by its exit code.

| code | meaning |
| --- | --- |
| 0 | the run ended with an answer; or the command did what it says |
| 1 | something unforeseen |
| 2 | the command line is wrong |
| 3 | the run ended in an error |
| 4 | the run ended without a full answer: a budget ran out, or no path was found |
| 5 | the run was cancelled |
| 6 | the gateway cannot be reached, or refused the request |
| 130 | interrupted |

`-o json` prints one JSON document, `-o jsonl` one event per line, both on stdout and nothing else there. These shapes
and codes are kept stable between versions.
"""

import asyncio
import json
import os
import shlex
import shutil
import sys
from collections.abc import Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from runwire.cli import doctor
from runwire.cli.rendering import Screen
from runwire.cli.setting_names import misspelt
from runwire.client import Client
from runwire.client.images import image_inputs
from runwire.errors import RunwireError, Unreachable
from runwire.local import launch
from runwire.local.data_folder import nats_login

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run LLM agents on your own machines.",
)

EXIT_ERROR, EXIT_INCOMPLETE, EXIT_CANCELLED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 3, 4, 5, 6, 130
DEMO = "Which region grew most in sales.csv? Draw a chart."
_PATIENCE_S = 10.0
"""For a gateway that does not answer, in seconds; a script may ask again."""
_DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="RUNWIRE_URL", help="The gateway; by default the one that `runwire up` started."),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--api-key", envvar="RUNWIRE_API_KEY", help="Needed unless the gateway is on this machine without keys."
    ),
]


class Output(StrEnum):
    """How a run is printed."""

    text = "text"
    json = "json"
    jsonl = "jsonl"


class Vision(StrEnum):
    """What becomes of images that no model sees."""

    strict = "strict"
    lenient = "lenient"


Format = Annotated[
    Output, typer.Option("-o", "--output", help="text for people, json for the result, jsonl for every event.")
]


def _url(given: str | None) -> str:
    return given or launch.remembered(launch.data_dir()).get("url") or _DEFAULT_URL


def _finish(work: Coroutine[Any, Any, int]) -> None:
    """Run a command to its exit code."""
    try:
        code = asyncio.run(work)
    except RunwireError as error:
        _complain(
            f"{error}. Start one with `{_command()} up`, or give --url"
            if isinstance(error, Unreachable)
            else str(error)
        )
        code = EXIT_UNREACHABLE
    except launch.CannotLaunch as error:
        _complain(str(error))
        code = 1
    except (KeyboardInterrupt, launch.Stopped):
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def _complain(text: str) -> None:
    Console(stderr=True).print(f"[red]runwire: [/red]{escape(text)}", highlight=False, soft_wrap=True)


@app.command()
def up(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the gateway on loopback; 0: any free one.")] = 8080,
    tools: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True, dir_okay=False, help="A Python file with tools; may be repeated. Default: the examples."
        ),
    ] = None,
    no_tools: Annotated[bool, typer.Option("--no-tools", help="Serve no tools.")] = False,
    copies: Annotated[int, typer.Option(min=1, max=16, help="Planners and tool runners to start.")] = 1,
    demo: Annotated[bool, typer.Option("--demo", help="Put one question through and show its stream.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Stop after the demo's answer.")] = False,
) -> None:
    """Start everything on this machine and stay in the foreground. Data is kept under RUNWIRE_DATA_DIR (.runwire)."""
    files = [] if no_tools else tools or launch.example_tools()
    plan = launch.Plan(data=launch.data_dir(), port=port, tools=files, copies=copies)
    _finish(_up(plan, demo=demo or once, once=once))


async def _up(plan: launch.Plan, *, demo: bool, once: bool) -> int:
    console = Console()
    stop = launch.stop_event()
    for sentence in misspelt(os.environ):
        _note(console, sentence)
    console.print(
        "[dim]starting nats-server, an S3 server, planner, tool_runner, artifact_store, gateway and tools …[/dim]"
    )
    async with launch.running(plan, lambda text: _note(console, text), stop) as endpoints:
        where = (
            f"gateway [bold]{endpoints['url']}[/bold] · NATS {endpoints['nats_url']} · data {escape(str(plan.data))}"
        )
        console.print(where, highlight=False, soft_wrap=True)
        code = 0
        if demo:
            console.print(f"\n[bold cyan]? {DEMO}[/bold cyan]")
            asking = asyncio.create_task(_ask(endpoints["url"], None, DEMO, {}, Output.text))
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait({asking, stopped}, return_when=asyncio.FIRST_COMPLETED)
            code = asking.result() if asking.done() else EXIT_INTERRUPTED
        if not once:
            console.print(
                f'\n[dim]Ctrl-C stops everything. In another terminal:[/dim] {escape(_command())} run "What is 17*23?"',
                soft_wrap=True,
            )
            await stop.wait()
            code = 0
        console.print("[dim]stopping …[/dim]")
    return code


def _note(console: Console, text: str) -> None:
    console.print(f"[yellow]{escape(text)}[/yellow]", highlight=False, soft_wrap=True)


def _command() -> str:
    """How this program was called, so that people can repeat it: an environment that is not active has it on no path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m runwire"
    on_path = shutil.which("runwire")
    return "runwire" if on_path and called.resolve() == Path(on_path).resolve() else str(called)


@app.command()
def run(
    question: str,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    agent: Annotated[str | None, typer.Option(help="An entry of the agents file.")] = None,
    model: Annotated[str | None, typer.Option(help="LiteLLM's name of a model.")] = None,
    tool: Annotated[
        list[str] | None, typer.Option(help="A tool that the run may use; may be repeated. Default: all.")
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True, dir_okay=False, help="A png, jpeg, webp or gif to show to the model; may be repeated."
        ),
    ] = None,
    vision: Annotated[
        Vision | None,
        typer.Option(
            help="Images for a model that takes none: strict refuses the run, lenient drops them with a warning."
        ),
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1)] = None,
    deadline_s: Annotated[float | None, typer.Option(min=0.001)] = None,
) -> None:
    """Ask a question and show how it is answered."""
    limits = {
        name: value for name, value in (("max_steps", max_steps), ("deadline_s", deadline_s)) if value is not None
    }
    try:
        images = image_inputs(image or ())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--image") from None
    given = {
        "agent": agent,
        "model": model,
        "tools": tool,
        "limits": limits or None,
        "images": images or None,
        "vision": vision,
    }
    _finish(
        _ask(_url(url), api_key, question, {name: value for name, value in given.items() if value is not None}, output)
    )


async def _ask(url: str, api_key: str | None, question: str, options: dict[str, Any], output: Output) -> int:
    async with Client(url, api_key, patience_s=_PATIENCE_S) as client:
        run_id = await client.start(question, **options)
        return await _show(client, run_id, output)


@app.command()
def tail(run_id: str, url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """Follow a run from its beginning, whether it goes on or has ended."""

    async def work() -> int:
        async with Client(_url(url), api_key, patience_s=_PATIENCE_S) as client:
            return await _show(client, run_id, output)

    _finish(work())


async def _show(client: Client, run_id: str, output: Output) -> int:
    try:
        end = await _followed(client, run_id, output)
    except asyncio.CancelledError:
        sys.stderr.write("\n")
        _complain(f"the run goes on: `{_command()} tail {run_id}` shows it, `{_command()} cancel {run_id}` stops it")
        raise
    if output is Output.json:
        payload = end.get("payload") or {
            name: value for name, value in end.items() if name not in {"type", "reason", "usage"}
        }
        document = {
            "run_id": run_id,
            "status": end.get("type"),
            "reason": end.get("reason"),
            "code": end.get("code"),
            "payload": payload,
        }
        sys.stdout.write(json.dumps({**document, "usage": end.get("usage")}, ensure_ascii=False) + "\n")
    return _exit_code(end)


async def _followed(client: Client, run_id: str, output: Output) -> dict[str, Any]:
    """Show a run's events and return the last."""
    screen = Screen(Console())
    end: dict[str, Any] = {}
    async for happened in client.follow(run_id):
        event = happened.model_dump(mode="json")
        if output is Output.jsonl:
            sys.stdout.write(json.dumps(event, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        elif output is Output.text:
            screen.show(event)
        end = event
    return end


def _exit_code(end: dict[str, Any]) -> int:
    if end.get("type") == "done":
        return 0 if end.get("reason") == "answer_complete" else EXIT_INCOMPLETE
    return EXIT_CANCELLED if end.get("type") == "cancelled" else EXIT_ERROR


@app.command()
def cancel(run_id: str, url: Url = None, api_key: Key = None, reason: str = "") -> None:
    """Stop a run."""

    async def work() -> int:
        async with Client(_url(url), api_key, patience_s=_PATIENCE_S) as client:
            await client.cancel(run_id, reason)
        return 0

    _finish(work())


@app.command()
def delete(run_id: str, url: Url = None, api_key: Key = None) -> None:
    """Delete a run with its events, artifacts and images; one that goes on is cancelled first."""

    async def work() -> int:
        async with Client(_url(url), api_key, patience_s=_PATIENCE_S) as client:
            await client.delete(run_id)
        return 0

    _finish(work())


@app.command()
def fetch(
    artifact_id: str,
    file: Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file. Default: stdout.")] = None,
    url: Url = None,
    api_key: Key = None,
) -> None:
    """Get the bytes of an artifact."""

    async def work() -> int:
        async with Client(_url(url), api_key, patience_s=_PATIENCE_S) as client:
            pieces = client.fetch(artifact_id)
            first = await anext(pieces, b"")  # What is not there leaves no file.
            with _opened(file) as target:
                target.write(first)
                async for piece in pieces:
                    target.write(piece)
        return 0

    _finish(work())


def _opened(file: Path | None) -> BinaryIO:
    return file.open("wb") if file else os.fdopen(os.dup(sys.stdout.fileno()), "wb")


@app.command()
def tools(url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """List the tools that are there now."""

    async def work() -> int:
        async with Client(_url(url), api_key, patience_s=_PATIENCE_S) as client:
            specs = [spec.model_dump(mode="json") for spec in await client.tools()]
            refused = await client.refused_tools()
        if output is not Output.text:
            sys.stdout.write(json.dumps(specs, ensure_ascii=False) + "\n")
            return 0
        table = Table("tool", "description", "arguments", "flags", box=None)
        for spec in specs:
            flags = [name for name in ("idempotent", "requires_approval") if spec.get(name)]
            arguments = ", ".join((spec.get("input_schema") or {}).get("properties") or {})
            table.add_row(spec["name"], spec.get("description") or "", arguments, " ".join(flags))
        Console().print(table)
        for tool in refused:
            Console(stderr=True).print(
                f"{escape(tool.name)} is refused: {escape(tool.reason)}", highlight=False, soft_wrap=True
            )
        return 0

    _finish(work())


@app.command()
def serve(
    files: list[Path],
    nats_url: Annotated[
        str | None, typer.Option(envvar="RUNWIRE_NATS_URL", help="By default the server that `runwire up` starts.")
    ] = None,
) -> None:
    """Serve the tools of Python files over NATS."""
    from runwire.serving import server  # noqa: PLC0415, the other commands need no NATS client

    server.main([str(file) for file in files], nats_url)


@app.command()
def env() -> None:
    """Print how to reach the NATS server that `runwire up` started here, for tools in other languages: eval "$(runwire env)".

    The password is among it.
    """
    found = launch.remembered(launch.data_dir()).get("nats_url")
    if found is None:
        _complain(f"nothing runs from {launch.data_dir()}. Start it with `{_command()} up`, or set RUNWIRE_DATA_DIR")
        raise typer.Exit(1)
    login = nats_login(launch.data_dir(), found)
    for prefix in ("RUNWIRE_NATS", "NATS"):
        for name, value in (("URL", found), *((name.upper(), value) for name, value in login.items())):
            sys.stdout.write(f"export {prefix}_{name}={shlex.quote(value)}\n")


@app.command(name="doctor")
def doctor_(url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """Check this machine, the gateway, NATS, the model and the tools; say what to mend."""

    async def work() -> int:
        checks = await doctor.examine(_url(url), api_key, os.environ)
        if output is not Output.text:
            sys.stdout.write(json.dumps([check.__dict__ for check in checks], ensure_ascii=False) + "\n")
        else:
            console = Console()
            for check in checks:
                mark = {"ok": "[green]✓[/green]", "warning": "[yellow]![/yellow]", "failed": "[red]✗[/red]"}[
                    check.status
                ]
                console.print(f"{mark} {check.name}: {escape(check.finding)}", highlight=False, soft_wrap=True)
                if check.mend:
                    console.print(f"  [dim]{escape(check.mend)}[/dim]", highlight=False, soft_wrap=True)
        return 1 if any(check.status == "failed" for check in checks) else 0

    _finish(work())


def main() -> None:
    """The entry point of the `runwire` script."""
    app()
