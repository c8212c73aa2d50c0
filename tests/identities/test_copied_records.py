"""A gateway that was taken over has the server copy a message of its own to a run's log: readers refuse the copy."""

import asyncio
import json

from contracts.runs.events import Cancelled
from contracts.runs.payload import FinalPayload
from contracts.wire import subjects
from contracts.wire.ids import new_id
from contracts.wire.records import EVENTS_HEADER, Record
from services.messaging.connection import Bus
from services.shared.runs.last_record import last_record
from services.shared.runs.run_follower import RunFollower
from tests.identities.scene import Scene
from tests.support.gateways import Writer

FORGED = Record(events=[Cancelled(payload=FinalPayload(raw_answer="forged"))])
TENANT = "other"


async def _copied(scene: Scene) -> None:
    """Store a forged end as a request, and have it read to the log of a run: permissions cannot prevent it."""
    me = await scene.as_("gateway")
    request = subjects.request(TENANT, new_id())
    await me.client.publish(request, FORGED.model_dump_json().encode(), headers={EVENTS_HEADER: FORGED.types()})
    asked = json.dumps({"last_by_subj": request}).encode()
    assert await scene.grows("RUNS", me, me.publish(subjects.direct_get("REQUESTS"), asked, scene.log))
    assert me.complaints == []


async def _followed(bus: Bus, run: str) -> list[str]:
    """The types of all events that a follower is given."""
    found: list[str] = []
    async for records in RunFollower(bus, TENANT, run).records():
        found += [event.type for each in records for event in Record.model_validate_json(each.data).events]
    return found


async def test_a_copied_end_ends_no_run(guarded: Scene) -> None:
    """Neither for who follows the run live, nor for who reads it back, as any of the services that do."""
    writer = Writer(guarded.operator, TENANT, guarded.run)
    readers = [await guarded.bus_of(user) for user in ("gateway", "planner", "tool_runner")]
    await writer.open()
    live = asyncio.create_task(_followed(readers[0], guarded.run))
    await _copied(guarded)
    for bus in readers:
        last = await last_record(bus, TENANT, guarded.run)
        assert last is not None
        assert (last.headers or {})[EVENTS_HEADER] == "run_started"
    await writer.done()
    await _copied(guarded)
    assert await live == await _followed(readers[0], guarded.run) == ["run_started", "step", "done"]
    last = await last_record(readers[2], TENANT, guarded.run)
    assert last is not None
    assert "done" in (last.headers or {})[EVENTS_HEADER]
