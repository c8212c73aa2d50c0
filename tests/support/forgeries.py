"""Messages that nobody may write, stored all the same: NATS itself answers to any reply subject in its account."""

import orjson

from contracts.runs.events import Cancelled
from contracts.runs.payload import FinalPayload
from contracts.wire import subjects
from contracts.wire.records import EVENTS_HEADER, Record
from services.messaging.connection import Bus

from .waiting import wait_until

END = Record(events=[Cancelled(payload=FinalPayload(raw_answer="forged"))])
"""A record that would end a run."""


async def forge(bus: Bus, target: str, data: bytes, headers: dict[str, str] | None = None) -> int:
    """Have a stored message read back to `target`, a subject of a log or bucket; return its sequence there."""
    return await answered_to(bus, target, *await _read_of(bus, data, headers))


async def _read_of(bus: Bus, data: bytes, headers: dict[str, str] | None) -> tuple[str, dict[str, object]]:
    source = subjects.dead(subjects.CALLS)
    await bus.publish(source, data, headers)
    return subjects.direct_get(subjects.DEAD), {"last_by_subj": source}


async def forge_end(bus: Bus, run: str) -> int:
    """Put a forged end on a run's log; return its sequence."""
    return await forge(bus, subjects.log("default", run), END.model_dump_json().encode(), {EVENTS_HEADER: END.types()})


async def answered_to(bus: Bus, target: str, api: str, question: dict[str, object]) -> int:
    """Ask JetStream with a subject of a stream as the reply subject; return the sequence of the stored answer."""
    stream = str(subjects.stream_of(target))
    before = await bus.last_from_leader(stream, target)
    await bus.send(api, orjson.dumps(question), reply=target)

    async def stored() -> int:
        newest = await bus.last_from_leader(stream, target)
        return newest[0] if newest is not None and newest != before else 0

    return await wait_until(stored, what="the answer is stored")
