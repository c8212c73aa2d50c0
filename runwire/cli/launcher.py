"""`runwire up` once its options are read: start everything, and stop it after Ctrl-C or SIGTERM.

It runs as long as the system does. So it prints without rich, and has no library of another command.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from runwire.cli.exit_codes import EXIT_INTERRUPTED, exit_code, program
from runwire.local import launch

DEMO_QUESTION = "Which region grew most in sales.csv? Draw a chart."
_BOLD, _DIM, _YELLOW, _QUESTION = "1", "2", "33", "1;36"


def main(options: str) -> int:
    """Run until a signal, and return the exit code. `options` is what `runwire up` has read, as JSON."""
    return exit_code(_up(**json.loads(options)))


async def _up(*, tools: list[str] | None, demo: bool, once: bool, **plan: Any) -> int:
    """`tools`: files to serve; None: the examples. The rest is for `launch.Plan`."""
    examples = launch.example_tools()  # refuses what is no checkout, whatever is served
    data, files = launch.data_dir(), examples if tools is None else [Path(file) for file in tools]
    stop = launch.stop_event()
    _print(
        _styled(_DIM, "starting nats-server, an S3 server, planner, tool_runner, artifact_store, gateway and tools …")
    )
    async with launch.running(launch.Plan(data, tools=files, **plan), _warn, stop) as endpoints:
        url = endpoints["url"]
        where = f"NATS {endpoints['nats_url']}, sync {endpoints['sync']} · data {data}"
        _print(f"gateway {_styled(_BOLD, url)} · {where}")
        code = await _demo(url, stop) if demo else 0
        if not once:
            hint = _styled(_DIM, "Ctrl-C stops everything. In another terminal:")
            _print(f'\n{hint} {program()} run "What is 17*23?"')
            await stop.wait()
            code = 0
        _print(_styled(_DIM, "stopping …"))
    return code


async def _demo(url: str, stop: asyncio.Event) -> int:
    """Run the demo's question, unless everything is stopped before."""
    from runwire.cli.common import Output  # noqa: PLC0415, see above
    from runwire.cli.run_commands import start_and_show  # noqa: PLC0415

    _print(f"\n{_styled(_QUESTION, f'? {DEMO_QUESTION}')}")
    running = asyncio.create_task(start_and_show(url, None, DEMO_QUESTION, {}, Output.text))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    return running.result() if running.done() else EXIT_INTERRUPTED


def _warn(text: str) -> None:
    _print(_styled(_YELLOW, text))


def _styled(style: str, text: str) -> str:
    """Text with the SGR codes of a terminal, where stdout is one."""
    plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return text if plain else f"\x1b[{style}m{text}\x1b[0m"


def _print(line: str) -> None:
    """Print a line at once. A reader that has gone away is no reason to stop."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
