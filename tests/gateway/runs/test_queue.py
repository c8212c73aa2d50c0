"""A client whose run waits for a planner receives its place in its tenant's queue, at little cost."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contracts.wire import subjects
from contracts.wire.ids import new_id
from services.gateway.auth.key_lines import new_key
from services.gateway.runs.queue import OpenRuns, open_runs
from services.messaging.connection import Bus
from tests.support.forked import Forked
from tests.support.gateways import Served, Writer, planner_process, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

ALL_THREE = [["1 of 3"], ["2 of 3"], ["3 of 3"]]


@pytest.fixture
async def keyed(own_nats_server: NatsServer) -> AsyncIterator[tuple[Served, dict[str, dict[str, str]]]]:
    """A gateway for two tenants, and the headers of each. No planner runs."""
    headers, lines = {}, []
    for tenant in ("acme", "other"):
        key, line = new_key(tenant)
        headers[tenant] = {"Authorization": f"Bearer {key}"}
        lines.append(line)
    async with serving(own_nats_server.url, api_keys=",".join(lines)) as served:
        yield served, headers


@pytest.fixture
def shared_nats(own_nats_server: NatsServer) -> NatsServer:
    """The server of one test: no other runs wait."""
    return own_nats_server


class Listener:
    """A client that streams a run, and the comments and events that it has received."""

    def __init__(self) -> None:
        self.run = ""
        self.lines: list[str] = []

    @property
    def places(self) -> list[str]:
        """The places that it was told."""
        return [line.removeprefix(": waiting, place ") for line in self.lines if line.startswith(": waiting")]

    @property
    def events(self) -> list[str]:
        """The types of the events."""
        return [line.removeprefix("event: ") for line in self.lines if line.startswith("event: ")]

    async def listen(self, served: Served, headers: dict[str, str], run: str = "") -> None:
        """Start a run and follow it, or follow one that was started."""
        headers = {**headers, "Accept": "text/event-stream"}
        method, path, body = ("GET", f"/v1/runs/{run}/events", None) if run else ("POST", "/v1/runs", {"query": "x"})
        async with served.http.stream(method, path, headers=headers, json=body) as answer:
            assert answer.status_code == 200
            self.run = answer.headers["runwire-run"]
            async for line in answer.aiter_lines():
                self.lines.append(line)


@contextlib.asynccontextmanager
async def listening(served: Served, headers: dict[str, str], count: int = 1, run: str = "") -> AsyncIterator[Any]:
    """Listeners, one after another, for as long as the block lasts."""
    found, tasks = [], []
    for _ in range(count):
        listener = Listener()
        tasks.append(asyncio.create_task(listener.listen(served, headers, run)))
        await wait_until(partial(getattr, listener, "run"), what="the stream is open")
        found.append(listener)
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_waiting_client_is_told_its_place_and_each_new_one(
    keyed: tuple[Served, dict[str, dict[str, str]]], bus: Bus
) -> None:
    """In its own tenant's queue; a run that begins makes room, and its client is told nothing more."""
    served, headers = keyed
    async with (
        listening(served, headers["acme"], 3) as (first, second, third),
        listening(served, headers["other"]) as (other,),
    ):
        await wait_until(lambda: third.places and other.places, what="all know that they wait")
        await wait_until(lambda: first.places[-1] == "1 of 3", what="the first knows of the others")
        assert [each.places[-1] for each in (first, second, third)] == ["1 of 3", "2 of 3", "3 of 3"]
        assert other.places == ["1 of 1"]
        await Writer(bus, "acme", first.run).open()
        await wait_until(lambda: third.places[-1] == "2 of 2", what="the others move on")
        assert second.places[-2:] == ["2 of 3", "1 of 2"]
        assert (first.places[-1], first.events) == ("1 of 3", ["run_started"])
        async with listening(served, headers["acme"], run=second.run) as (late,):
            await wait_until(lambda: late.places, what="one who comes later knows it too")
            assert late.places == ["1 of 2"]
        assert other.places == ["1 of 1"], "a place that stays is not repeated"


async def test_runs_that_others_accepted_count(keyed: tuple[Served, dict[str, dict[str, str]]], bus: Bus) -> None:
    """Those that were there before are ahead, those that come later are not."""
    served, headers = keyed
    before, after = new_id(), new_id()
    await bus.publish(subjects.request("acme", before), b"{}")
    async with listening(served, headers["acme"]) as (mine,):
        await wait_until(lambda: mine.places, what="it waits")
        assert mine.places == ["2 of 2"]
        await bus.publish(subjects.request("acme", after), b"{}")
        await wait_until(lambda: len(mine.places) == 2, what="the queue has grown")
        await bus.publish(f"timer.acme.{before}.deadline", b"{}")
        await wait_until(lambda: len(mine.places) == 3, what="the first has begun")
        assert mine.places == ["2 of 2", "2 of 3", "1 of 2"]


async def test_many_waiting_clients_cost_one_query(
    keyed: tuple[Served, dict[str, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second and tenant."""
    served, headers = keyed
    async with listening(served, headers["acme"], 20) as listeners:
        await wait_until(lambda: listeners[0].places[-1:] == ["1 of 20"], what="all wait")
        api, asked = served.gateway.bus.api, []

        async def counted(subject: str, *args: Any, **more: Any) -> Any:
            asked.append(subject)
            return await api(subject, *args, **more)

        monkeypatch.setattr(served.gateway.bus, "api", counted)
        await wait_until(lambda: len(asked) >= 4, what="two seconds have passed")
        assert asked[:4] == ["STREAM.INFO.REQUESTS", "STREAM.INFO.TIMERS"] * 2
        assert [each.places[-1] for each in listeners] == [f"{number} of 20" for number in range(1, 21)]
    await wait_until(lambda: not served.gateway.queue._waiters, what="nothing is left")


async def test_open_runs_are_listed_by_stream(bus: Bus) -> None:
    """A subject that names no run is none, and neither is a timer of a session or a schedule."""
    queued, timed = new_id(), new_id()
    last = await bus.publish(subjects.request("acme", queued), b"{}")
    await bus.publish(f"timer.acme.{timed}.deadline", b"{}")
    await bus.publish("timer.acme.x_y.deadline", b"{}")
    for name in (f"group-{queued}", f"waiter-{queued}", "fire"):
        await bus.publish(subjects.timer("acme", new_id(), name), b"{}")
    assert await open_runs(bus, "acme") == OpenRuns(frozenset({queued}), frozenset({timed}), last)


@pytest.fixture
def planner(own_nats_server: NatsServer, tmp_path: Path) -> Iterator[Forked]:
    """A planner that a test may stop."""
    with planner_process(own_nats_server.url, tmp_path) as process:
        yield process


@pytest.mark.system
@pytest.mark.timeout(120)
async def test_clients_of_a_planner_that_stands_still_wait(own_nats_server: NatsServer, planner: Forked) -> None:
    """They are told so, and nothing more once it goes on; a run that begins at once is told nothing."""
    async with serving(own_nats_server.url) as served:
        async with listening(served, {}) as (quick,):
            await wait_until(lambda: "done" in quick.events, timeout=60, what="the planner works")
        async with listening(served, {}) as (quick,):
            await wait_until(lambda: "done" in quick.events, what="a run ends")
            assert quick.places == []
        planner.send_signal(signal.SIGSTOP)
        async with listening(served, {}, 3) as listeners:
            await wait_until(lambda: [each.places[-1:] for each in listeners] == ALL_THREE, what="all wait")
            planner.send_signal(signal.SIGCONT)
            await wait_until(lambda: all("done" in each.events for each in listeners), timeout=60, what="all end")
            for each in listeners:
                waited = max(number for number, line in enumerate(each.lines) if line.startswith(": waiting"))
                assert waited < each.lines.index("event: run_started")
