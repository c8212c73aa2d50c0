"""Whoever dies in the middle of a call: it is settled once, and a side effect happens once."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts import subjects
from contracts.events import ArtifactChunk, Observed
from contracts.inbox import CallFinished
from contracts.tools import ToolCall
from runwire.serving.stall import STALL_S
from services.messaging import dead_letters
from services.messaging.errors import BusError
from services.messaging.pull_consumer import Delivery
from services.messaging.streams.definitions import consumer
from services.messaging.streams.provision import ensure_consumer
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

from .conftest import ROOT, Ledger, Planner, Start


async def test_a_safe_call_is_repeated_when_its_tool_dies(
    planner: Planner, start_runner: Start, ledger: Ledger
) -> None:
    """Heartbeats stop, no copy holds the call, so another copy does it. What was shown before is not shown again."""
    ledger.start()
    await start_runner()
    run = await planner.request(f"safe_{ledger.suffix}", {"seconds": 1.2})
    await ledger.wrote("began")
    await wait_until(lambda: planner.shown(run), what="the first piece is shown")

    ledger.holder().kill()
    ledger.start()
    finished = await planner.outcome(run)

    assert finished.observation == f"{run}.1-0"
    assert len(ledger.lines("began")) == 2
    pieces = [event.chunk for event in await planner.shown(run) if isinstance(event, ArtifactChunk)]
    assert pieces == ["first", "second"]


async def test_an_unsafe_call_is_not_repeated_when_its_tool_dies(
    planner: Planner, start_runner: Start, ledger: Ledger
) -> None:
    """The model is told that the outcome is unknown."""
    ledger.start()
    await start_runner()
    run = await planner.request(f"unsafe_{ledger.suffix}", {"seconds": 60})
    await ledger.wrote("began")
    ledger.start()
    await wait_until(lambda: planner.shown(run), what="the call is under way")

    ledger.holder().kill()
    finished = await planner.outcome(run)

    assert finished.failure is not None
    assert finished.failure.code == "outcome_unknown"
    assert len(ledger.lines("began")) == 1


async def test_the_only_copy_is_missed_when_it_dies_before_its_first_beat(
    planner: Planner, start_runner: Start, ledger: Ledger
) -> None:
    """Long before the time that a call may be silent: it has promised to beat."""
    ledger.start()
    await start_runner()
    finished = await planner.outcome(await planner.request(f"unsafe_{ledger.suffix}", {"seconds": -1}))
    assert finished.failure is not None
    assert finished.failure.code == "outcome_unknown"


async def test_a_tool_that_always_dies_is_given_up(planner: Planner, start_runner: Start, ledger: Ledger) -> None:
    """A call that kills whoever takes it does not kill all copies for ever."""
    ledger.start()
    await start_runner(max_attempts=2)
    run = await planner.request(f"safe_{ledger.suffix}", {"seconds": 60})

    for times in (1, 2):
        await ledger.wrote(f"began {run}", times)
        holder = ledger.holder()
        if times == 1:
            ledger.start()
        holder.kill()
    finished = await planner.outcome(run)

    assert finished.failure is not None
    assert finished.failure.code == "tool_unavailable"


async def test_a_stopped_tool_does_nothing_late(planner: Planner, start_runner: Start, ledger: Ledger) -> None:
    """A process that was stopped finds a request in its socket when it wakes up; nobody waits for that one any more."""
    process = ledger.start()
    bus = await start_runner()
    await planner.call(f"unsafe_{ledger.suffix}", {"seconds": 0})
    process.send_signal(signal.SIGSTOP)
    run = await planner.request(f"unsafe_{ledger.suffix}", {"seconds": 0}, deadline_at=_in_ms(1.0))

    finished = await planner.outcome(run)
    process.send_signal(signal.SIGCONT)
    # The process has read everything that was waiting for it once it answers a call that was sent later.
    await planner.call(f"unsafe_{ledger.suffix}", {"seconds": 0})

    assert finished.failure is not None
    assert finished.failure.code == "deadline_passed"
    assert not ledger.lines(f"began {run}")
    assert bus.is_connected


async def test_a_stopped_tool_starts_nothing_that_came_over_a_lost_connection(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    """However many requests wait in its socket; what comes over the next connection is done."""
    ledger = Ledger(tmp_path, own_nats_server.url)
    subject = subjects.tool(f"safe_{ledger.suffix}")

    def request(key: str) -> bytes:
        call = ToolCall(
            call_id="1-0",
            run_id=key,
            tool="safe",
            args={"seconds": 0},
            idempotency_key=f"{key}.1-0",
            deadline_at=_in_ms(60),
        )
        return call.model_dump_json().encode()

    try:
        process = ledger.start()
        async with connected(own_nats_server.url) as bus:

            async def done(key: str) -> bool:
                with contextlib.suppress(BusError):
                    return bool((await bus.request(subject, request(key), 5)).data)
                return False

            await wait_until(lambda: done("first"), what="the tool is there")
            process.send_signal(signal.SIGSTOP)
            for key in ("one", "two", "three"):
                await bus.nc.publish(subject, request(key), reply="nobody.waits")
            await bus.nc.flush()
            await asyncio.sleep(0.3)  # the server has written them into the socket of the tool
            own_nats_server.kill()
            own_nats_server.start()
            await asyncio.sleep(STALL_S)
            process.send_signal(signal.SIGCONT)
            await wait_until(lambda: done("next"), what="the tool is there again")
        assert [line.split()[2] for line in ledger.lines("began")] == ["first.1-0", "next.1-0"]
    finally:
        ledger.stop()


def _in_ms(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


@pytest.fixture
def runner_process(server: NatsServer) -> Iterator[subprocess.Popen[bytes]]:
    """A tool runner that may be killed."""
    environment = os.environ | {
        "RUNWIRE_NATS_URL": server.url,
        "RUNWIRE_DISCOVER_S": "0.3",
        "RUNWIRE_LOG_LEVEL": "warning",
    }
    command = [sys.executable, "-P", "-m", "services.tool_runner"]
    process = subprocess.Popen(command, env=environment | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("kind", ["safe", "unsafe"])
async def test_another_tool_runner_joins_the_call_in_flight(
    planner: Planner, start_runner: Start, ledger: Ledger, runner_process: subprocess.Popen[bytes], kind: str
) -> None:
    """The tool goes on as if nothing had happened, and its one execution is the call's outcome."""
    ledger.start()
    ledger.start()
    run = await planner.request(f"{kind}_{ledger.suffix}", {"seconds": 3})
    await ledger.wrote("began")

    runner_process.kill()
    await start_runner()
    finished = await planner.outcome(run)

    assert finished.observation == f"{run}.1-0"
    assert finished.latency_ms >= 3000, "it counts from its first start"
    assert len(ledger.lines("began")) == 1
    pieces = [event.chunk for event in await planner.shown(run) if isinstance(event, ArtifactChunk)]
    assert pieces == ["first", "second"]


async def test_a_finished_result_is_fetched_not_made_again(
    planner: Planner, start_runner: Start, ledger: Ledger, runner_process: subprocess.Popen[bytes]
) -> None:
    """The tool finished while no tool runner was there to hear it."""
    ledger.start()
    run = await planner.request(f"unsafe_{ledger.suffix}", {"seconds": 1})
    await ledger.wrote("began")
    runner_process.kill()
    await ledger.wrote("done")

    await start_runner()
    finished = await planner.outcome(run)

    assert finished.observation == f"{run}.1-0"
    assert len(ledger.lines("began")) == 1


async def test_a_settled_call_is_not_done_again(planner: Planner, start_runner: Start, ledger: Ledger) -> None:
    """The planner may ask again when it does not know whether it has asked: the outcome waits in the inbox, or is in the log."""
    ledger.start()
    await start_runner()
    name = f"safe_{ledger.suffix}"
    run = await planner.request(name, {"seconds": 0})
    await planner.outcome(run)

    await planner.request(name, {"seconds": 0}, run=run, again=True)
    await wait_until(lambda: _all_done(planner, name), what="the repetition is acknowledged")
    assert len(ledger.lines("began")) == 1

    await planner.append(run, Observed(call_id="1-0", tool=name, status="succeeded"))
    await planner.bus.api(f"STREAM.PURGE.{subjects.INBOX}", {"filter": subjects.inbox("default", run, "1-0")})
    await planner.request(name, {"seconds": 0}, run=run, again=True)
    await wait_until(lambda: _all_done(planner, name), what="the repetition is acknowledged")
    assert len(ledger.lines("began")) == 1
    assert not await planner.inbox(run)


async def _all_done(planner: Planner, tool: str) -> bool:
    return await planner.open_calls(tool) == 0


async def test_an_ended_run_causes_nothing_more(planner: Planner, start_runner: Start, ledger: Ledger) -> None:
    """A call that waits while its run ends is dropped."""
    ledger.start()
    await start_runner()
    name = f"safe_{ledger.suffix}"
    await planner.spec(name)
    run = await planner.open_run()
    await planner.end_run(run)

    await planner.request(name, {"seconds": 0}, run=run)
    await wait_until(lambda: _all_done(planner, name), what="the call is acknowledged")

    assert not ledger.lines("began")
    assert not await planner.inbox(run)


async def test_a_cancelled_run_stops_its_calls(planner: Planner, start_runner: Start, ledger: Ledger) -> None:
    """The tool is told, and nobody waits any more."""
    ledger.start()
    await start_runner()
    name = f"safe_{ledger.suffix}"
    run = await planner.request(name, {"seconds": 60})
    await ledger.wrote("began")

    await planner.end_run(run)

    await ledger.wrote("cancelled")
    await wait_until(lambda: _all_done(planner, name), what="the call is acknowledged")
    assert not await planner.inbox(run)


async def test_a_call_that_nobody_has_begun_is_no_poison(planner: Planner, start_runner: Start) -> None:
    """However often it was delivered: to a tool runner that stood still, say."""
    name = "untouched"
    await ensure_consumer(
        planner.bus, subjects.CALLS, consumer(subjects.calls_consumer(name), subjects.calls_of(name), 0.2)
    )
    run = await planner.request(name, {}, spec="0" * 24)
    pull = await planner.bus.nc.jetstream().pull_subscribe_bind(subjects.calls_consumer(name), subjects.CALLS)
    for _ in range(5):
        await pull.fetch(1, timeout=5)

    await start_runner(max_deliveries=2)
    finished = await planner.outcome(run)

    assert finished.failure is not None
    assert finished.failure.code == "unknown_tool"
    assert run not in str([message.headers for message in await planner.buried(subjects.CALLS)])


async def test_a_call_that_was_begun_too_often_is_buried(
    planner: Planner, start_runner: Start, server: NatsServer
) -> None:
    """It is kept for people, and the run goes on with a failure."""
    name = "killer"
    lane = consumer(subjects.calls_consumer(name), subjects.calls_of(name), 0.2)
    await ensure_consumer(planner.bus, subjects.CALLS, lane)
    run = await planner.request(name, {}, spec="0" * 24)
    pull = await planner.bus.nc.jetstream().pull_subscribe_bind(subjects.calls_consumer(name), subjects.CALLS)
    for _ in range(3):
        for message in await pull.fetch(1, timeout=5):  # Begun, as by a tool runner that dies of it.
            await dead_letters.count_start(planner.bus, Delivery(message))

    await start_runner(max_deliveries=2)
    finished = await planner.outcome(run)

    assert finished.failure is not None
    assert finished.failure.code == "poisoned"
    assert [run in (message.headers or {})["Runwire-Dead-Subject"] for message in await planner.buried(subjects.CALLS)][
        -1
    ]
    await wait_until(lambda: _all_done(planner, name), what="the call is acknowledged")
    assert server.running


@pytest.mark.parametrize("body", [b"", b"{", b'{"v": 2}', b"[" * 5000], ids=["empty", "cut", "newer", "deep"])
async def test_what_is_no_call_is_buried(planner: Planner, start_runner: Start, body: bytes) -> None:
    """The service lives, and the run that waits for the call is told."""
    name = "target"
    await ensure_consumer(
        planner.bus, subjects.CALLS, consumer(subjects.calls_consumer(name), subjects.calls_of(name), 2.0)
    )
    await start_runner()
    run = await planner.open_run()

    await planner.bus.publish(subjects.call("default", run, name), body, {"Nats-Msg-Id": f"{run}.1-0"})

    finished: CallFinished = await planner.outcome(run)
    assert finished.failure is not None
    assert finished.failure.code == "poisoned"
    assert (await planner.buried(subjects.CALLS))[-1].data == body
