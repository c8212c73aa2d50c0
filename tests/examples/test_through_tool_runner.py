"""The real tool_runner discovers the examples that use no SDK, and settles their calls."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest

from contracts import keys, subjects
from contracts.events import Asked as ModelAsked
from contracts.ids import new_id
from contracts.inbox import CallFinished
from contracts.records import EVENTS_HEADER, Record
from contracts.tools import CallRequested, ToolSpec
from services.messaging.connection import Bus
from services.messaging.streams.provision import provision
from services.runtime.settings import BusSettings
from tests.examples.conftest import EXAMPLES, Start, program
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

# The limit covers the build, which counts for the first test.
pytestmark = [pytest.mark.timeout(300), pytest.mark.system]

TENANT = "default"
SQUARE = [{"name": f"{a}{b}", "latitude": a, "longitude": b} for a in (0, 1) for b in (0, 1)]
BANK = {"arrivals_per_s": 1.8, "service_s": 1, "servers": 2, "customers": 30_000}


@pytest.fixture
async def bus(own_nats_server: NatsServer, start: Start) -> AsyncIterator[Bus]:
    """A connection of a planner's kind; a tool_runner runs beside it."""
    bus = Bus("planner", BusSettings(nats_url=own_nats_server.url))
    async with await nats.connect(**bus.client_options()) as client:
        bus.attach(client)
        await provision(bus)
        await start([sys.executable, "-P", "-m", "services.tool_runner"], own_nats_server)
        yield bus


async def settled(bus: Bus, tool: str, args: dict[str, Any]) -> tuple[CallFinished, list[str]]:
    """Call a tool as a planner does; the outcome, and the types of what listeners of the run were shown meanwhile."""

    async def found() -> ToolSpec | None:
        message = await bus.last(f"KV_{keys.CATALOGUE_BUCKET}", f"$KV.{keys.CATALOGUE_BUCKET}.{keys.tool_key(tool)}")
        return ToolSpec.model_validate_json(message.data) if message else None

    spec = await wait_until(found, timeout=30, what=f"{tool} was in the catalogue")
    assert spec is not None
    run = new_id()
    opened = Record(events=[ModelAsked(turn=1, attempt=1, by="INBOX:1", holder="h")])
    await bus.publish(subjects.log(TENANT, run), opened.model_dump_json().encode(), {EVENTS_HEADER: opened.types()})
    call = CallRequested(call_id="1-0", run_id=run, tenant=TENANT, tool=tool, args=args, spec=spec.digest(), step=1)
    await bus.publish(subjects.call(TENANT, run, tool), call.model_dump_json().encode())

    async def finished() -> CallFinished | None:
        message = await bus.last(subjects.INBOX, subjects.inbox(TENANT, run, "1-0"))
        return CallFinished.model_validate_json(message.data) if message else None

    outcome = await wait_until(finished, timeout=30, what=f"the call of {tool} was settled")
    assert outcome is not None
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
    start: Start,
    own_nats_server: NatsServer,
    bus: Bus,
    language: str,
    name: str,
    args: dict[str, Any],
    artifact: str,
    answer: str,
) -> None:
    """People see the artifact grow and get it whole; the model gets one line in its place."""
    await start(program(request.getfixturevalue(language), name), own_nats_server)
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


async def test_a_tool_without_an_sdk(start: Start, own_nats_server: NatsServer, bus: Bus) -> None:
    """Twenty lines of Python are a tool."""
    await start([sys.executable, str(EXAMPLES / "python" / "plain_nats_tool.py")], own_nats_server)
    outcome, shown = await settled(bus, "weekday", {"date": "2026-02-28"})
    assert outcome.observation == {"answer": "2026-02-28 is a Saturday"}
    assert shown == []
    outcome, _ = await settled(bus, "weekday", {"date": "2026-02-30"})
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert "give a date as" in outcome.failure.reason
