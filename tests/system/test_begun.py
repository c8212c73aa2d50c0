"""A message is poison when its handling was begun too often, and not when it was merely delivered."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contracts.runs.events import Done, Error
from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.messaging.streams import PLANNER_REQUESTS
from tests.support.model_server import Say
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack
from tests.support.waiting import wait_until
from tests.system import evidence
from tests.system.model import PlannedModel

pytestmark = [pytest.mark.timeout(240), pytest.mark.sample(1, of="file")]

TENANT = subjects.DEFAULT_TENANT
LIMIT = 3
PLANNER = "planner-1"
_TOO_MUCH_FOR_A_RECORD = (1 << 20) - 1000


@contextmanager
def _stack(folder: Path, model: PlannedModel) -> Iterator[tuple[Stack, NatsServer]]:
    nats = NatsServer(folder / "nats", identities=True)
    nats.start()
    env = {**model.env, "RUNWIRE_MAX_DELIVERIES": str(LIMIT), "RUNWIRE_ACK_WAIT_S": "0.5"}
    try:
        with (
            Stack(
                nats.url, folder / "stack", env, planners=1, tool_runners=0, gateways=0, passwords=nats.passwords
            ) as stack,
            stack.showing_logs(),
        ):
            yield stack, nats
        assert nats.violations() == []
    finally:
        nats.kill()


@pytest.fixture
def model() -> Iterator[PlannedModel]:
    with PlannedModel() as model:
        yield model


@pytest.fixture
def parts(tmp_path: Path, model: PlannedModel) -> Iterator[tuple[Stack, NatsServer]]:
    """One planner, for which three handlings are too many, and its NATS."""
    with _stack(tmp_path, model) as parts:
        yield parts


@pytest.fixture
def stack(parts: tuple[Stack, NatsServer]) -> Stack:
    return parts[0]


@pytest.fixture
async def bus(parts: tuple[Stack, NatsServer]) -> AsyncIterator[Bus]:
    """Asks for runs, and looks at what is stored."""
    bus = await evidence.connect(parts[1])
    yield bus
    await bus.leave()


async def _ask(bus: Bus, query: str, **more: Any) -> str:
    run, now = new_id(), time.time_ns() // 1_000_000
    request = RunRequested(run_id=run, tenant=TENANT, requested_at=now, trace_id=new_id(), query=query, **more)
    await bus.publish(subjects.request(TENANT, run), request.model_dump_json().encode(), {"Nats-Msg-Id": run})
    return run


async def _end(bus: Bus, run: str) -> Done | Error | None:
    last = await bus.last(subjects.RUNS, subjects.log(TENANT, run))
    event = Record.model_validate_json(last.data).events[-1] if last is not None else None
    return event if isinstance(event, Done | Error) else None


async def _ended(bus: Bus, run: str) -> Done | Error:
    found = await wait_until(lambda: _end(bus, run), timeout=60, what=f"run {run} has ended")
    assert found is not None
    return found


async def _asked(model: PlannedModel, times: int) -> None:
    await wait_until(lambda: len(model.ledger) >= times, timeout=60, what=f"the model is asked {times} times")


async def test_runs_that_nobody_has_begun_are_no_poison(stack: Stack, model: PlannedModel, bus: Bus) -> None:
    """They were sent to a planner that stood still, more often than a message may be handled, until it was killed."""
    model.say(Say(text='{"next_node": "final_response", "args": {"answer": "Yes."}}'))
    stack.freeze(PLANNER)
    runs = [await _ask(bus, "Is anybody there?") for _ in range(5)]

    async def delivered_too_often() -> bool:
        found = await bus.api(f"CONSUMER.INFO.{subjects.REQUESTS}.{PLANNER_REQUESTS}", {})
        return int(found["delivered"]["consumer_seq"]) > 2 * LIMIT * len(runs)

    await wait_until(delivered_too_often, what="every request was delivered more often than it may be handled")
    stack.kill(PLANNER)
    stack.spawn(PLANNER)
    assert [type(await _ended(bus, run)) for run in runs] == [Done] * len(runs)
    assert await evidence.dead(bus) == []


async def test_a_run_that_kills_its_planner_each_time_is_set_aside(stack: Stack, model: PlannedModel, bus: Bus) -> None:
    """Each handling was begun: the question was asked. The limit ends it before the attempts of a turn do."""
    model.say(Say(silent=True))
    run = await _ask(bus, "What kills?")
    for deaths in range(1, LIMIT + 2):
        await _asked(model, deaths)
        stack.kill(PLANNER)
        assert await _end(bus, run) is None
        await asyncio.to_thread(stack.mend)
    end = await _ended(bus, run)
    assert isinstance(end, Error)
    assert end.code == "poisoned"
    assert len(model.ledger) == LIMIT + 1
    assert [subject for subject, _, _ in await evidence.dead(bus)] == [subjects.request(TENANT, run)]


async def test_a_message_whose_handling_fails_each_time_is_set_aside(
    stack: Stack, model: PlannedModel, bus: Bus
) -> None:
    """The request fits into its stream, but the first record of its run does not fit: every write of it is refused."""
    model.say(Say(text='{"next_node": "final_response", "args": {"answer": "Yes."}}'))
    run = await _ask(bus, "?" * _TOO_MUCH_FOR_A_RECORD)
    end = await _ended(bus, run)
    assert isinstance(end, Error)
    assert end.code == "poisoned"
    assert [subject for subject, _, _ in await evidence.dead(bus)] == [subjects.request(TENANT, run)]
    # The first handling is not counted.
    assert stack.log_of(PLANNER).read_bytes().count(b"handling_failed") == LIMIT + 1
    assert isinstance(await _ended(bus, await _ask(bus, "Is anybody there?")), Done)
