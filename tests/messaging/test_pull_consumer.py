"""A puller takes no more than it can hold, keeps what it holds, and leaves what it does not settle."""

import asyncio
from collections import Counter
from collections.abc import Awaitable

import pytest

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging import dead_letters
from services.messaging.connection import Bus
from services.messaging.pull_consumer import Delivery, PullConsumer
from services.messaging.streams import PLANNER_INBOX
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

RUN = "0192f0c1a2b37c4d8e5f60718293a4b5"


async def fill(bus: Bus, count: int) -> None:
    for _ in range(count):
        await bus.publish(subjects.inbox("default", RUN, new_id()), b"{}")


async def left(bus: Bus) -> int:
    """Messages in the inbox that nobody has acknowledged."""
    return int((await bus.api("STREAM.INFO.INBOX", {}))["state"]["messages"])


async def _is(work: Awaitable[int], expected: int) -> bool:
    return await work == expected


async def test_a_message_in_work_is_kept_by_heartbeats(bus: Bus) -> None:
    """The acknowledgement time is 1 s here; work of 2.5 s is delivered once."""
    seen: Counter[int] = Counter()

    async def handle(delivery: Delivery) -> bool:
        seen[delivery.sequence] += 1
        await asyncio.sleep(2.5)
        return True

    await fill(bus, 1)
    puller = await PullConsumer(bus, "INBOX", PLANNER_INBOX, handle, 4).start()
    await wait_until(lambda: _is(left(bus), 0), what="the message to be settled")
    assert seen == {1: 1}
    await puller.stop(1)


async def test_a_message_that_is_redelivered_in_the_middle_of_its_work_takes_no_second_slot(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was late with its heartbeats takes new messages all the same, and acknowledges the old one."""
    monkeypatch.setattr(PullConsumer, "_send_heartbeats", lambda _: asyncio.Event().wait())
    go_on, seen = asyncio.Event(), Counter[int]()

    async def handle(delivery: Delivery) -> bool:
        seen[delivery.sequence] += 1
        if delivery.sequence == 1:
            await go_on.wait()
        return True

    async def redelivered() -> bool:
        found = await bus.api(f"CONSUMER.INFO.INBOX.{PLANNER_INBOX}", {})
        return bool(found["num_redelivered"])

    await fill(bus, 1)
    puller = await PullConsumer(bus, "INBOX", PLANNER_INBOX, handle, 2).start()
    await wait_until(redelivered, what="the message is delivered again")
    await fill(bus, 2)
    await wait_until(lambda: len(seen) == 3, what="the others are handled")
    assert puller.busy == 1
    go_on.set()
    await wait_until(lambda: _is(left(bus), 0), what="all are settled")
    assert set(seen.values()) == {1}
    await puller.stop(1)


async def test_work_goes_on_after_the_server_was_killed(bus: Bus, own_nats_server: NatsServer) -> None:
    """The pull is renewed at once; a message in work meanwhile is joined, not begun again."""
    begun: Counter[int] = Counter()
    go_on = asyncio.Event()

    async def handle(delivery: Delivery) -> bool:
        begun[delivery.sequence] += 1
        await go_on.wait()
        return True

    await fill(bus, 2)
    puller = await PullConsumer(bus, "INBOX", PLANNER_INBOX, handle, 8).start()
    await wait_until(lambda: len(begun) == 2, what="both to begin")
    own_nats_server.kill()
    own_nats_server.start()
    await wait_until(lambda: bus.is_connected, what="the connection to be back")
    await asyncio.sleep(1.5)
    go_on.set()
    await wait_until(lambda: _is(left(bus), 0), what="both to be settled", timeout=15)
    assert set(begun.values()) == {1}
    await puller.stop(1)


async def test_the_dead_are_kept_with_the_reason(bus: Bus) -> None:
    """What cannot be processed is kept whole, once, with where it came from and why."""

    async def handle(delivery: Delivery) -> bool:
        await dead_letters.dead_letter(bus, delivery, "no\r\nsense: é")
        await dead_letters.dead_letter(bus, delivery, "a second time")
        return True

    subject = subjects.inbox("default", RUN, "x")
    await bus.publish(subject, b"\xff\x00 nonsense")
    puller = await PullConsumer(bus, "INBOX", PLANNER_INBOX, handle, 1).start()
    await wait_until(lambda: _is(left(bus), 0), what="the message to be dead-lettered")
    kept = await bus.last("DEAD", subjects.dead("INBOX"))
    assert kept is not None
    assert kept.data == b"\xff\x00 nonsense"
    assert kept.headers is not None
    assert kept.headers[dead_letters.SUBJECT] == subject
    assert kept.headers[dead_letters.REASON] == "no sense: ?"
    assert (await bus.api("STREAM.INFO.DEAD", {}))["state"]["messages"] == 1
    await puller.stop(1)


async def test_a_tenant_that_fills_the_queue_leaves_slots_to_another(bus: Bus) -> None:
    """What is above its share goes back unread, and is handled in the end."""
    go_on = asyncio.Event()
    seen: Counter[str] = Counter()
    begun: Counter[int] = Counter()

    async def handle(delivery: Delivery) -> bool:
        begun[delivery.sequence] += 1
        tenant = subjects.tenant_of(delivery.subject)
        seen[tenant] += 1
        if tenant == "crowd":
            await go_on.wait()
        return True

    for _ in range(20):
        await bus.publish(subjects.inbox("crowd", RUN, new_id()), b"{}")
    puller = await PullConsumer(bus, "INBOX", PLANNER_INBOX, handle, 8, subjects.tenant_of).start()
    await wait_until(lambda: seen["crowd"] == 5, what="the crowd to have its share")
    for count in range(1, 4):
        await bus.publish(subjects.inbox("other", RUN, new_id()), b"{}")
        await wait_until(lambda: seen["other"] == count, what="the other tenant to be handled")  # noqa: B023
    assert seen["crowd"] == 5
    go_on.set()
    await wait_until(lambda: _is(left(bus), 0), what="the inbox to be empty", timeout=30)
    assert set(begun.values()) == {1}
    await puller.stop(1)
