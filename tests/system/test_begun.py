"""A message is poison when its handling was begun too often, and not when it was merely delivered."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from contracts.runs.events import Done, Error
from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.messaging.streams import PLANNER_REQUESTS
from tests.support.model_server import Say, answer
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


@dataclass
class Scene:
    """One planner, for which three handlings are too many, its model, and who asks for runs."""

    stack: Stack
    model: PlannedModel
    bus: Bus

    async def ask(self, query: str) -> str:
        run, now = new_id(), time.time_ns() // 1_000_000
        request = RunRequested(run_id=run, tenant=TENANT, requested_at=now, trace_id=new_id(), query=query)
        body = request.model_dump_json().encode()
        await self.bus.publish(subjects.request(TENANT, run), body, {"Nats-Msg-Id": run})
        return run

    async def end(self, run: str) -> Done | Error | None:
        last = await self.bus.last(subjects.RUNS, subjects.log(TENANT, run))
        event = Record.model_validate_json(last.data).events[-1] if last is not None else None
        return event if isinstance(event, Done | Error) else None

    async def ended(self, run: str) -> Done | Error:
        found = await wait_until(lambda: self.end(run), timeout=60, what=f"run {run} has ended")
        assert found is not None
        return found

    async def is_poison(self, run: str) -> bool:
        """Whether a run has ended so, and its request is kept in DEAD; nothing else is."""
        end = await self.ended(run)
        dead = [subject for subject, _, _ in await evidence.dead(self.bus)]
        return isinstance(end, Error) and end.code == "poisoned" and dead == [subjects.request(TENANT, run)]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """With a NATS of its own."""
    with NatsServer(tmp_path / "nats", identities=True) as nats, PlannedModel() as model:
        env = {**model.env, "RUNWIRE_MAX_DELIVERIES": str(LIMIT), "RUNWIRE_ACK_WAIT_S": "0.5"}
        stack = Stack(nats.url, tmp_path / "stack", env, 1, 0, 0, passwords=nats.passwords)
        with stack, stack.showing_logs():
            async with evidence.connected(nats) as bus:
                yield Scene(stack, model, bus)
        assert nats.violations() == []


async def test_runs_that_nobody_has_begun_are_no_poison(scene: Scene) -> None:
    """They were sent to a planner that stood still, more often than a message may be handled, until it was killed."""
    scene.model.say(answer("Yes."))
    scene.stack.freeze(PLANNER)
    runs = [await scene.ask("Is anybody there?") for _ in range(5)]

    async def delivered_too_often() -> bool:
        found = await scene.bus.api(f"CONSUMER.INFO.{subjects.REQUESTS}.{PLANNER_REQUESTS}", {})
        return int(found["delivered"]["consumer_seq"]) > 2 * LIMIT * len(runs)

    await wait_until(delivered_too_often, what="every request was delivered more often than it may be handled")
    scene.stack.kill(PLANNER)
    scene.stack.spawn(PLANNER)
    assert [type(await scene.ended(run)) for run in runs] == [Done] * len(runs)
    assert await evidence.dead(scene.bus) == []


async def test_a_run_that_kills_its_planner_each_time_is_set_aside(scene: Scene) -> None:
    """Each handling was begun: the question was asked. The limit ends it before the attempts of a turn do."""
    scene.model.say(Say(silent=True))
    run = await scene.ask("What kills?")
    for deaths in range(1, LIMIT + 2):
        await wait_until(partial(_is_asked, scene.model, deaths), timeout=60, what=f"it is asked {deaths} times")
        scene.stack.kill(PLANNER)
        assert await scene.end(run) is None
        await asyncio.to_thread(scene.stack.mend)
    assert await scene.is_poison(run)
    assert len(scene.model.ledger) == LIMIT + 1


def _is_asked(model: PlannedModel, times: int) -> bool:
    return len(model.ledger) >= times


async def test_a_message_whose_handling_fails_each_time_is_set_aside(scene: Scene) -> None:
    """The request fits into its stream, but the first record of its run does not fit: every write of it is refused."""
    scene.model.say(answer("Yes."))
    assert await scene.is_poison(await scene.ask("?" * _TOO_MUCH_FOR_A_RECORD))
    # The first handling is not counted.
    assert scene.stack.log_of(PLANNER).read_bytes().count(b"handling_failed") == LIMIT + 1
    assert isinstance(await scene.ended(await scene.ask("Is anybody there?")), Done)
