"""Acceptance with announcements that no well-behaved tool sends, and with several tool runners at once."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from runwire import tool
from services.messaging.connection import Bus
from services.tool_runner.app import running
from services.tool_runner.discovery.acceptance import Acceptance
from services.tool_runner.discovery.announcements import Announcement
from services.tool_runner.settings import ToolRunnerSettings
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Serve, Start
from tests.tool_runner.discovery.acceptances import accepted, bucket, refusal, writes


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


async def test_ever_new_specifications_over_nats_cost_little(
    planner: Planner, start_runner: Start, serve_tools: Serve, client: Client
) -> None:
    """One is offered; of the others nothing is stored, and other tools are called meanwhile."""
    sent = 0

    async def on_question(message: Msg) -> None:
        nonlocal sent
        for _ in range(1_000):
            sent += 1
            spec = ToolSpec(name="geyser", description=f"variant {sent}")
            endpoint = {"subject": "tool.geyser", "metadata": {"runwire.spec": spec.model_dump_json()}}
            info = {"name": "geyser", "id": f"instance{sent}", "version": f"1.0.{sent}", "endpoints": [endpoint]}
            await client.publish(message.reply, json.dumps(info).encode())

    async def on_ping(message: Msg) -> None:
        await message.respond(b'{"name": "geyser"}')

    @tool
    async def bystander() -> int:
        return 1

    await client.subscribe("$SRV.INFO.geyser", cb=on_question)
    await client.subscribe("$SRV.PING", cb=on_ping)
    serve_tools(bystander)
    before, began = await writes(planner.bus), time.monotonic()
    await start_runner(trust_tools=False, discover_s=0.2)

    await wait_until(lambda: sent >= 10_000, what="ten thousand were announced")
    assert (await planner.call("bystander", {})).observation == 1
    digests = await accepted(planner.bus, "geyser")
    assert len(digests) == 1
    assert 1 <= len((await refusal(planner.bus, "geyser")).digests) <= 8
    stored = await bucket(planner.bus).keys(keys.tool_spec.all)
    offered = {keys.tool_spec(spec.digest()) for spec in planner.catalogue.live().values()}
    assert keys.tool_spec(digests[0]) in offered
    assert await writes(planner.bus) - before <= 3 * (time.monotonic() - began) + 10
    assert not {key for key in stored if key not in offered and await _is_of(planner, key, "geyser")}


async def _is_of(planner: Planner, key: str, name: str) -> bool:
    spec = (await bucket(planner.bus).get(key)).parsed(ToolSpec)
    return spec is not None and spec.name == name


async def test_two_specifications_with_one_digest(planner: Planner, server: NatsServer) -> None:
    """A digest has 96 bits, so an author could find two. The one that was stored first counts."""
    first, second = announced("twin", "the first"), announced("twin", "the second")
    await planner.declare(first.spec)
    settings = ToolRunnerSettings(nats_url=server.url, graceful_timeout_s=0.1, trust_tools=True)
    both = [replace(second, digest=first.digest), announced("beside", "another tool")]
    with structlog.testing.capture_logs() as logs:
        async with connected(server.url, "tool_runner", settings) as bus, running(bus, settings, both):
            await planner.spec("beside")
    assert "twin" not in planner.catalogue.live()
    assert await planner.catalogue.spec(first.digest) == first.spec
    said = [line["tool"] for line in logs if line["event"] == "tool_digest_belongs_to_another_specification"]
    assert said == ["twin"]
