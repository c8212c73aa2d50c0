"""The real tool_runner discovers the examples that use no SDK, and settles their calls."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from contracts.runs.events import Asked as ModelAsked
from contracts.runs.inbox import CallFinished, CallPaused
from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from contracts.wire.records import EVENTS_HEADER, Record
from contracts.wire.rights import PROVISIONER
from contracts.wire.subject import PLANNER, TOOL_RUNNER
from services.messaging.connection import Bus
from services.messaging.streams import provision
from tests.examples.conftest import EXAMPLES, Running, Start, bus_of, new_credential, program
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

# The limit covers the build, which counts for the first test.
pytestmark = pytest.mark.timeout(300)

TENANT = "default"
Attach = Callable[[str, list[str]], Awaitable[Running]]
SQUARE = [{"name": f"{a}{b}", "latitude": a, "longitude": b} for a in (0, 1) for b in (0, 1)]
BANK = {"arrivals_per_s": 1.8, "service_s": 1, "servers": 2, "customers": 30_000}


@pytest.fixture
async def bus(users_server: NatsServer, start: Start) -> AsyncIterator[Bus]:
    """A connection of the planner; a tool_runner runs beside it. Each has the rights of its own user."""
    provisioner = await bus_of(users_server, PROVISIONER)
    await provision(provisioner)
    await provisioner.leave()
    bus = await bus_of(users_server, PLANNER)
    login = {f"RUNWIRE_NATS_{name.upper()}": value for name, value in users_server.login(TOOL_RUNNER).items()}
    await start([sys.executable, "-P", "-m", "services.tool_runner"], users_server, **login)
    yield bus
    await bus.leave()


@pytest.fixture
def attach(users_server: NatsServer, start: Start) -> Attach:
    """Start a tool with a credential of its own, which is made while everything runs."""

    async def attach(name: str, command: list[str]) -> Running:
        return await start(
            command, users_server, **await new_credential(users_server, lambda known: known.add_tools(name))
        )

    return attach


async def known(bus: Bus, tool: str) -> ToolSpec:
    async def found() -> ToolSpec | None:
        message = await bus.last(f"KV_{keys.CATALOGUE_BUCKET}", f"$KV.{keys.CATALOGUE_BUCKET}.{keys.live_tool(tool)}")
        return ToolSpec.model_validate_json(message.data) if message else None

    spec = await wait_until(found, timeout=30, what=f"{tool} was in the catalogue")
    assert spec is not None
    return spec


async def requested(bus: Bus, tool: str, args: dict[str, Any], **fields: Any) -> str:
    """Call a tool as a planner does, in a run of its own unless one is given; the run."""
    spec = await known(bus, tool)
    run: str = fields.pop("run_id", "")
    if not run:
        run = new_id()
        opened = Record(events=[ModelAsked(turn=1, attempt=1, by="INBOX:1", holder="h")])
        await bus.publish(subjects.log(TENANT, run), opened.model_dump_json().encode(), {EVENTS_HEADER: opened.types()})
    call = CallRequested(
        call_id="1-0", run_id=run, tenant=TENANT, tool=tool, args=args, spec=spec.digest(), step=1, **fields
    )
    await bus.publish(subjects.call(TENANT, run, tool), call.model_dump_json().encode())
    return run


async def received(bus: Bus, run: str, name: str = "1-0") -> bytes:
    """Wait for a message in the inbox of a run."""

    async def found() -> bytes:
        message = await bus.last(subjects.INBOX, subjects.inbox(TENANT, run, name))
        return message.data if message else b""

    body: bytes = await wait_until(found, timeout=30, what=f"{name} is in the inbox")
    return body


async def settled(bus: Bus, tool: str, args: dict[str, Any]) -> tuple[CallFinished, list[str]]:
    """Call a tool; the outcome, and the types of what listeners of the run were shown meanwhile."""
    run = await requested(bus, tool, args)
    outcome = CallFinished.model_validate_json(await received(bus, run))
    shown = await (await bus.reader(subjects.RUNS)).messages(subjects.stream(TENANT, run))
    return outcome, [(message.headers or {})[EVENTS_HEADER] for message in shown]


@pytest.mark.parametrize(
    ("language", "name", "args", "artifact", "answer"),
    [
        ("typescript", "plan_route", {"places": SQUARE}, "route", "The shortest round trip found is 444.8 km"),
        ("go", "simulate_queue", BANK, "chart", "With 2 servers a customer waits"),
    ],
)
async def test_a_tool_with_an_artifact(
    request: pytest.FixtureRequest,
    attach: Attach,
    bus: Bus,
    language: str,
    name: str,
    args: dict[str, Any],
    artifact: str,
    answer: str,
) -> None:
    """People see the artifact grow and get it whole; the model gets one line in its place."""
    await attach(name, program(request.getfixturevalue(language), name))
    outcome, shown = await settled(bus, name, args)
    assert outcome.status == "succeeded"
    assert outcome.observation["answer"].startswith(answer)
    assert outcome.observation[artifact] == f"<artifact:dict stream={artifact}>"
    assert list(outcome.artifacts) == [artifact]
    assert "artifact_chunk" in shown

    refused, _ = await settled(bus, name, {**args, next(iter(args)): "nonsense"})
    assert refused.status == "failed"
    assert refused.failure is not None
    assert refused.failure.code == "invalid_args"


@pytest.mark.sample(2)
@pytest.mark.parametrize("language", ["plain", "typescript", "go"])
async def test_a_tool_that_asks_a_person(
    request: pytest.FixtureRequest, attach: Attach, bus: Bus, language: str
) -> None:
    """Its pause ends the round; the next one brings the answer and what was kept. A rejection is a failure."""
    plain = [sys.executable, str(EXAMPLES / "python" / "plain_asking_tool.py")]
    await attach("book_seat", plain if language == "plain" else program(request.getfixturevalue(language), "book_seat"))
    args = {"flight": "LX 8"}
    for decision, answer in (("answer", "7A"), ("reject", None)):
        run = await requested(bus, "book_seat", args)
        pause = CallPaused.model_validate_json(await received(bus, run, "1-0-p0"))
        assert (pause.title, pause.state) == ("Which seat on LX 8?", {"offer": f"offer of {run}.1-0"})
        assert pause.input_schema == {"type": "string", "pattern": "^[0-9]{1,2}[A-F]$"}
        answers = [{"number": 0, "decision": decision, "input": answer, "note": "too late"}]
        await requested(bus, "book_seat", args, run_id=run, round=1, answers=answers, state=pause.state)
        outcome = CallFinished.model_validate_json(await received(bus, run, "1-0-r1"))
        if decision == "answer":
            assert outcome.observation == {"answer": "LX 8: seat 7A is booked", "by": f"offer of {run}.1-0"}
        else:
            assert outcome.failure is not None
            assert (outcome.failure.code, outcome.failure.reason) == ("rejected", "a person said no: too late")
