"""The last record of a run, where something was stored behind it."""

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.shared.runs.last_record import last_record
from services.shared.runs.run_follower import RunFollower
from tests.support.forgeries import forge_end


async def test_a_forged_record_is_not_the_last(bus: Bus) -> None:
    """Neither the last of a run that is open, nor that of one that has ended."""
    run = new_id()
    assert await last_record(bus, "default", run) is None
    forged = await forge_end(bus, run)
    alone = await last_record(bus, "default", run)
    assert alone is not None
    assert alone.data == b""
    await bus.publish(subjects.log("default", run), b"true", {"Runwire-Events": "done"})
    assert forged < await forge_end(bus, run)
    found = await last_record(bus, "default", run)
    assert found is not None
    assert (found.data, (found.headers or {})["Runwire-Events"]) == (b"true", "done")


async def test_listeners_do_not_see_a_forged_record(bus: Bus) -> None:
    """Live or read back; the next record has no gap before it."""
    run = new_id()
    log = subjects.log("default", run)
    follower = RunFollower(bus, "default", run)
    await follower.start(is_new=True)
    first = await bus.publish(log, b"first", {"Runwire-Events": "started"})
    await forge_end(bus, run)
    last = await bus.publish(log, b"last", {"Runwire-Events": "done"})
    for each in (follower, RunFollower(bus, "default", run)):
        seen = [record async for records in each.records() for record in records]
        assert [(record.sequence, record.data) for record in seen] == [(first, b"first"), (last, b"last")]
