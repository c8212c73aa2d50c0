"""The last record of a run, where something was stored behind it."""

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.shared.runs.last_record import last_record
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
