"""A message that cannot be parsed goes to DEAD with the reason: the services live, and other runs end as usual."""

from collections.abc import Callable, Iterator

import pytest

from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client, Frame
from tests.system.evidence import dead, drained, records
from tests.system.model import Plan
from tests.system.system import System

TENANT = subjects.DEFAULT_TENANT
DEEP = b"[" * 100 + b"]" * 100
DEEPER = b"[" * 100_000 + b"]" * 100_000
SHAPELESS = {
    "no JSON": b"\xff\x00{not json",
    "empty": b"",
    "wrong schema": b'{"v": 1, "kind": "call_finished", "call_id": []}',
    "unknown version": b'{"v": 99, "kind": "cancel"}',
    "unknown kind": b'{"v": 1, "kind": "made_up"}',
    "a hundred levels": DEEP,
    "a hundred thousand levels": DEEPER,
}


@pytest.fixture
def pids(system: System) -> Iterator[None]:
    """No process may end or be replaced during the test."""
    before = {name: system.stack.pid(name) for name in system.stack.parts}
    yield
    assert {name: system.stack.pid(name) for name, part in system.stack.parts.items() if part.alive} == before


async def _runs_normally(client: Client, name: str) -> None:
    plan = Plan(turns=(("often",), ("once",)), nth=f"after-{name}-{new_id()}")
    seen: list[Frame] = []
    end = await client.follow(await client.ask(plan.query, key=plan.nth), seen)
    assert (end["type"], end["reason"], end["raw_answer"]) == ("done", "answer_complete", plan.answer)


async def _dead_lettered(bus: Bus, subject: str, body: bytes) -> str:
    """Return the reason for which a message was set aside, once it was, whole."""

    async def found() -> list[str]:
        return [reason for where, reason, data in await dead(bus) if where == subject and data == body]

    reasons: list[str] = await wait_until(found, timeout=20, what=f"what was sent to {subject} is dead-lettered")
    assert len(reasons) == 1
    return reasons[0]


QUEUES: dict[str, Callable[[str], str]] = {
    "request": lambda run: subjects.request(TENANT, run),
    "inbox": lambda run: subjects.inbox(TENANT, run, new_id()),
    "control": lambda run: subjects.control(TENANT, run, new_id()),
    "call": lambda run: subjects.call(TENANT, run, "often"),
}


@pytest.mark.usefixtures("pids")
@pytest.mark.sample(1)
@pytest.mark.parametrize("queue", QUEUES)
async def test_shapeless_messages_are_set_aside(queue: str, client: Client, bus: Bus) -> None:
    """Each is kept whole in DEAD with the reason, and acknowledged. A run whose request it was has failed."""
    sent = {name: (QUEUES[queue](new_id()), body) for name, body in SHAPELESS.items()}
    for subject, body in sent.values():
        await bus.publish(subject, body)
    for subject, body in sent.values():
        assert await _dead_lettered(bus, subject, body)
    await drained(bus)
    if queue == "request":
        for subject, _ in sent.values():
            found = await client.status(subjects.parse(subject).run)
            assert (found["status"], found["code"]) == ("error", "poisoned")
    await _runs_normally(client, queue)


@pytest.mark.usefixtures("pids")
async def test_a_request_for_another_run_than_its_subject_is_set_aside(client: Client, bus: Bus) -> None:
    """Nobody starts a run in another tenant's name, or under another id."""
    run = new_id()
    for tenant, run_id in (("other", run), (TENANT, new_id())):
        request = (
            RunRequested(run_id=run_id, tenant=tenant, requested_at=1, trace_id=new_id(), query="q")
            .model_dump_json()
            .encode()
        )
        await bus.publish(subjects.request(TENANT, run), request)
        assert "subject" in await _dead_lettered(bus, subjects.request(TENANT, run), request)
        await drained(bus)
    assert await records(bus, run) == []
    await _runs_normally(client, "names")


@pytest.mark.usefixtures("pids")
@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["log", "stream"])
async def test_a_run_goes_on_over_garbage_in_its_own_records(
    kind: str, system: System, client: Client, bus: Bus
) -> None:
    """It counts for the fence and for nothing else; the client gets what is a record."""
    plan = Plan(turns=(("often",), ("often",)), call_ms=400, tokens=30, pace_ms=5, nth=f"garbage-{kind}")
    run = await client.ask(plan.query, key=plan.nth)
    await wait_until(lambda: system.executions(run), what="the run is under way")
    subject = f"emit.{TENANT}.{run}.{kind}"
    for body in SHAPELESS.values():
        await bus.publish(subject, body)
    seen: list[Frame] = []
    end = await client.follow(run, seen)
    assert (end["type"], end["raw_answer"]) == ("done", plan.answer)
    assert (await client.status(run))["status"] == "done"
    assert [event["type"] for _, event in seen][-1] == "done"
    if kind == "log":
        for body in SHAPELESS.values():
            if body:
                assert await _dead_lettered(bus, subject, body)
    await _runs_normally(client, kind)
