"""Reading back a subject on which somebody had answers of the server stored."""

import pytest
from structlog.testing import capture_logs

from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.support.forgeries import answered_to, forge


@pytest.mark.parametrize("name", ["Nats-Sequence", "Nats-Last-Sequence", "Status", "Runwire-Events"])
async def test_a_forged_message_has_a_place_and_no_content(bus: Bus, name: str) -> None:
    """Whatever headers were stored with it; it is logged once, with its run."""
    run = new_id()
    log = subjects.log("default", run)
    first = await bus.publish(log, b"first")
    forged = await forge(bus, log, b"forged", {name: "done"})
    last = await bus.publish(log, b"last")

    with capture_logs() as logged:
        reader = await bus.reader(subjects.RUNS)
        for _ in range(2):
            assert await reader.read(log) == [(first, b"first"), (forged, b""), (last, b"last")]
    found = [each for each in logged if each["event"] == "forged_message_ignored"]
    assert [(each["run_id"], each["sequence"]) for each in found] == [(run, forged)]


async def test_a_stored_answer_that_says_not_found_ends_no_page(bus: Bus) -> None:
    """It has a status, as the end of a page has."""
    log = subjects.log("default", new_id())
    first = await bus.publish(log, b"first")
    api = subjects.direct_get(subjects.DEAD)
    stored = await answered_to(bus, log, api, {"last_by_subj": subjects.dead("NOTHING")})
    last = await bus.publish(log, b"last")
    assert await (await bus.reader(subjects.RUNS)).read(log) == [(first, b"first"), (stored, b""), (last, b"last")]
    assert await bus.last(subjects.RUNS, log) is not None


async def test_a_forged_entry_is_no_value(bus: Bus) -> None:
    """The bucket's next write replaces it."""
    bucket, subject = Bucket(bus, keys.CATALOGUE_BUCKET), subjects.bucket_value(keys.CATALOGUE_BUCKET, "tool.x")
    seen: list[bytes] = []

    def see(_key: str, value: bytes) -> None:
        seen.append(value)

    await bucket.watch("tool.*", see)
    await forge(bus, subject, b"forged")
    assert (await bucket.get("tool.x")).data == b""
    await bucket.put("tool.x", b"true")
    await bus.barrier()
    assert (await bucket.get("tool.x")).data == b"true"
    assert seen == [b"true"]
