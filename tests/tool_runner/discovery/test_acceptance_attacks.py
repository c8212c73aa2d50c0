"""Acceptance with announcements that no well-behaved tool sends, and with several tool runners at once."""

import asyncio
import time
from typing import Any

import pytest
import structlog

from contracts.tools.messages import ToolSpec
from services.messaging.connection import Bus
from services.tool_runner.discovery.acceptance import Acceptance
from services.tool_runner.discovery.announcements import Announcement
from tests.tool_runner.conftest import Planner
from tests.tool_runner.discovery.acceptances import accepted, writes


class Writers:
    """Tool runners that accept, without discovery: a test hands them what is announced."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.changes = 0

    async def one(self, *declared: Announcement) -> Acceptance:
        """Start one more."""

        def count() -> None:
            self.changes += 1

        return await Acceptance(self.bus, declared, count, trust_all=False).start()


@pytest.fixture
def writers(planner: Planner) -> Writers:
    """Tool runners that accept."""
    return Writers(planner.bus)


def announced(name: str, description: str, version: str = "1.0.0", **fields: Any) -> Announcement:
    """An announcement as discovery yields it."""
    spec = ToolSpec(name=name, description=description, **fields)
    return Announcement(spec, spec.digest(), version, description)


async def test_of_several_tool_runners_one_decides(writers: Writers) -> None:
    """Each sees another specification first; all offer the same one."""
    runners = [await writers.one() for _ in range(4)]
    seen = [{f"race_{n}": [announced(f"race_{n}", f"variant {i}")] for n in range(10)} for i in range(4)]
    everything = {name: [each[name][0] for each in seen] for name in seen[0]}

    await asyncio.gather(*(runner.divide(own) for runner, own in zip(runners, seen, strict=True)))
    divided = [await runner.divide(everything) for runner in runners]

    for name in everything:
        (chosen,) = {tuple(one.digest for one in offered[name]) for offered, _ in divided}
        assert list(chosen) == await accepted(writers.bus, name)
        assert all(chosen[0] not in waiting[name].digests for _, waiting in divided)
        assert all(len(waiting[name].digests) == 3 for _, waiting in divided)


async def test_ten_thousand_specifications_are_neither_stored_nor_remembered(writers: Writers) -> None:
    """At once, and one after the other: the first is offered, a few of the others are named, and nothing is written."""
    runner = await writers.one()
    first = announced("flood", "the first")
    await runner.divide({"flood": [first]})
    stored = await writes(writers.bus)
    many = [announced("flood", f"variant {n}", f"1.0.{n}") for n in range(10_000)]

    with structlog.testing.capture_logs() as logs:
        offered, waiting = await runner.divide({"flood": [first, *many]})
        began = time.monotonic()
        for one in many:
            await runner.divide({"flood": [first, one]})
        assert time.monotonic() - began < 30

    assert offered == {"flood": [first]}
    assert waiting["flood"].digests[0] == many[-1].digest, "the highest version"
    assert len(waiting["flood"].digests) == 8
    assert "; 9999 more wait" in waiting["flood"].reason
    assert len(logs) == 8
    assert await writes(writers.bus) == stored
