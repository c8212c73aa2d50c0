"""A service whose event loop stands still, or whose background task dies: real processes, held in different ways."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest
from nats.aio.client import Client

from services.runtime.health import EXIT_CODE
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack
from tests.support.waiting import wait_until

from .watched_service import SECRET

NAME = "watched-1"


class Watched:
    """One process of the service, and a client that tells it what to do."""

    def __init__(self, stack: Stack, client: Client) -> None:
        self.stack = stack
        self.client = client

    def start(self, **env: str) -> None:
        self.stack.env = {**self.stack.env, **env}
        self.stack.add(NAME, "-m", "tests.runtime.watched_service")
        self.stack.spawn(NAME)
        self.stack.wait_ready(NAME)

    def lines(self, event: str) -> list[dict[str, Any]]:
        text = self.stack.log_of(NAME).read_text()
        return [
            found
            for line in text.splitlines()
            if line.startswith("{") and (found := json.loads(line))["event"] == event
        ]

    async def logged(self, event: str) -> dict[str, Any]:
        """The first line of a name, once it is there."""
        return (await wait_until(lambda: self.lines(event), what=f"{event} is logged"))[0]

    def exit_code(self) -> int | None:
        """How it has ended; None while it runs."""
        process = self.stack.parts[NAME].process
        assert process is not None
        return process.poll()

    async def ended(self) -> int:
        await wait_until(lambda: self.exit_code() is not None, what="the process has ended")
        code = self.exit_code()
        assert code is not None
        return code

    async def status(self, path: str) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.stack.url_of(NAME), timeout=2) as http:
            return await http.get(path)


@pytest.fixture
async def watched(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Watched]:
    """Nothing is started yet."""
    stack = Stack(nats_server.url, tmp_path, planners=0, tool_runners=0, gateways=0)
    await asyncio.to_thread(stack.provision)
    async with await nats.connect(nats_server.url) as client:
        yield Watched(stack, client)
    stack.__exit__()


@pytest.mark.sample(1)
@pytest.mark.parametrize(("how", "function"), [("sleep", "hold_by_sleeping"), ("spin", "hold_by_spinning")])
async def test_what_held_the_loop_is_named_without_values(watched: Watched, how: str, function: str) -> None:
    """One line, with the function; the service goes on."""
    watched.start()
    await watched.client.publish(f"hold.{how}", b"0.6")

    line = await watched.logged("event_loop_blocked")

    assert line["level"] == "warning"
    assert line["service"] == "watched"
    assert line["ms"] >= 300
    assert any(function in name for name in line["by"])
    assert SECRET not in watched.stack.log_of(NAME).read_text()
    assert (await watched.status("/livez")).status_code == 200


@pytest.mark.parametrize(("how", "code"), [("sleep", EXIT_CODE), ("match", -signal.SIGVTALRM)])
async def test_a_process_whose_loop_stands_still_ends_itself(watched: Watched, how: str, code: int) -> None:
    """By a thread, or by the kernel where no thread runs; whoever supervises it starts it again. The log says where."""
    watched.start(RUNWIRE_STALL_EXIT_S="0.5")
    await watched.client.publish(f"hold.{how}", b"60")

    assert await watched.ended() == code
    assert f"hold_by_{how}" in watched.stack.log_of(NAME).read_text()


async def test_a_frozen_process_has_not_stood_still(watched: Watched) -> None:
    """A machine that sleeps, or a process that is stopped, is not the fault of what runs in it."""
    watched.start(RUNWIRE_STALL_EXIT_S="1")
    watched.stack.freeze(NAME)
    await asyncio.sleep(2.5)
    watched.stack.thaw(NAME)
    await wait_until(lambda: watched.stack.is_ready(NAME), what="it answers again")
    await watched.client.publish("hold.sleep", b"0.5")
    line = await watched.logged("event_loop_blocked")

    assert line["ms"] < 1500
    assert watched.exit_code() is None


async def test_a_background_task_that_fails_begins_anew(watched: Watched) -> None:
    """The log names the error and the place, `/readyz` the task; what the error says may be somebody's secret."""
    watched.start()
    assert (await watched.status("/readyz")).status_code == 200
    await watched.client.publish("die", b"")

    line = await watched.logged("background_task_failed")
    answer = await watched.status("/readyz")

    assert (line["task"], line["error"], line["level"]) == ("mortal", "KeyError", "error")
    assert line["places"][-1].startswith("watched_service.py:")
    assert answer.status_code == 503
    assert answer.json()["problems"] == ["background task mortal has failed: KeyError"]
    assert SECRET not in watched.stack.log_of(NAME).read_text()
