"""A process dies in the middle of a call or around its pause: it has one outcome, and a side effect happens once."""

import asyncio
import contextlib
import signal
import time
from pathlib import Path

import pytest

from contracts.runs.events import ArtifactChunk
from contracts.tools.messages import ToolCall
from contracts.wire import subjects
from runwire.serving.connection import STALL_S
from services.messaging import dead_letters
from services.messaging.errors import BusError
from services.messaging.pull_consumer import Delivery
from tests.support.buses import connected, processed
from tests.support.forked import Forked
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

from .conftest import Ledger, Planner, Start, fault_of


async def test_a_suspended_tool_executes_no_request_of_a_lost_connection(
    own_nats_server: NatsServer, tmp_path: Path
) -> None:
    """However many requests wait in its socket; those of the next connection are executed."""
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
            await processed(bus.nc)
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


@pytest.mark.parametrize("kind", ["safe", "unsafe"])
async def test_another_tool_runner_joins_the_call_in_flight(
    planner: Planner, start_runner: Start, ledger: Ledger, runner_process: Forked, kind: str
) -> None:
    """The tool continues, and its one execution gives the outcome."""
    ledger.start()
    ledger.start()
    run = await planner.request(f"{kind}_{ledger.suffix}", {"seconds": 3})
    await ledger.wrote("began")

    runner_process.kill()
    await start_runner()
    finished = await planner.outcome(run)

    assert finished.observation == f"{run}.1-0"
    assert finished.latency_ms >= 3000, "it is measured from its first start"
    assert len(ledger.lines("began")) == 1
    pieces = [event.chunk for event in await planner.shown(run) if isinstance(event, ArtifactChunk)]
    assert pieces == ["first", "second"]


@pytest.mark.parametrize(("is_started", "code"), [(False, "unknown_tool"), (True, "poisoned")])
async def test_a_call_whose_handling_started_too_often_is_a_dead_letter(
    planner: Planner, start_runner: Start, *, is_started: bool, code: str
) -> None:
    """And the run continues. One that was only delivered, as to a suspended tool runner, is none."""
    name = f"killer_{code}"
    await planner.open_consumer(name, 0.2)
    run = await planner.request(name, {}, spec="0" * 24)
    pull = await planner.bus.nc.jetstream().pull_subscribe_bind(subjects.calls_consumer(name), subjects.CALLS)
    for _ in range(3):
        for message in await pull.fetch(1, timeout=5):
            if is_started:  # As by a tool runner that is killed by it.
                await dead_letters.count_start(planner.bus, Delivery(message))

    await start_runner(max_deliveries=2)

    assert fault_of(await planner.outcome(run)).code == code
    dead = [(message.headers or {})["Runwire-Dead-Subject"] for message in await planner.dead_letters(subjects.CALLS)]
    assert any(run in subject for subject in dead) == is_started
    await planner.acknowledged(name)


@pytest.mark.parametrize(("round_key", "outcome"), [("1-0", "1-0"), ("1-0~2", "1-0-r2")])
@pytest.mark.parametrize("body", [b"", b"{", b'{"v": 2}', b"[" * 5000], ids=["empty", "cut", "newer", "deep"])
async def test_an_invalid_message_is_a_dead_letter(
    planner: Planner, start_runner: Start, body: bytes, round_key: str, outcome: str
) -> None:
    """The service continues, and so does the run, with a failure of the round that the message id names."""
    name = "target"
    await planner.open_consumer(name)
    await start_runner()
    run = await planner.open_run()

    await planner.bus.publish(subjects.call("default", run, name), body, {"Nats-Msg-Id": f"{run}.{round_key}"})

    assert fault_of(await planner.outcome(run, outcome)).code == "poisoned"
    assert (await planner.dead_letters(subjects.CALLS))[-1].data == body
