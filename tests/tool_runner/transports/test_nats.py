"""What replies over NATS mean; floods, lost parts, and tools that are killed."""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel
from structlog.testing import capture_logs

from contracts.tools.messages import PARTS_HEADER, REPLY_HEADER, ToolFailure, ToolSpec
from contracts.wire import subjects
from contracts.wire.base import MAX_INLINE_BYTES
from contracts.wire.rights import LOCAL_TOOLS
from contracts.wire.subject import TOOL_RUNNER
from runwire import tool
from services.messaging.connection import Bus
from services.runtime.settings import BusSettings
from services.shared.redaction.json_values import CUT_MARK
from services.tool_runner.calls import events
from services.tool_runner.calls.events import Event
from services.tool_runner.errors import ToolReported
from services.tool_runner.transports import nats
from services.tool_runner.transports.base import EventQueue
from services.tool_runner.transports.nats import Answers, event_of, read_failure
from tests.support.buses import provisioned
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Serve, Start, fault_of, replying

INSTANCE = "an_instance"
TOOL = f"""
import asyncio, sys, nats
from tests.support.buses import processed

async def main():
    client = await nats.connect(sys.argv[1], user=sys.argv[2], password=sys.argv[3])

    async def answer(message):
        await message.respond(b"here")

    for subject in ("$SRV.PING.weather.{INSTANCE}", "tool.weather.status"):
        await client.subscribe(subject, cb=answer)
    await processed(client)
    print("ready", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats", identities=True) as found:
        yield found


@pytest.mark.parametrize("subject", [subjects.discover_ping("weather", INSTANCE), subjects.tool_status("weather")])
async def test_nats_says_at_once_that_a_killed_tool_is_gone(guarded_server: NatsServer, subject: str) -> None:
    """Across the border of the accounts."""
    login = guarded_server.login(LOCAL_TOOLS)
    command = [sys.executable, "-c", TOOL, guarded_server.url, login["user"], login["password"]]
    bus = await Bus(TOOL_RUNNER, BusSettings(**guarded_server.settings(TOOL_RUNNER))).connect()
    answers, queue = Answers(bus), EventQueue(1 << 20)
    tool = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert tool.stdout is not None
    assert await tool.stdout.readline() == b"ready\n"
    with answers.to(queue):
        assert await answers.send("weather", subject, b"", queue, 1)
        assert await queue.next(5) == events.Result(1, b"here", None)
        tool.kill()
        await tool.wait()
        began = time.monotonic()
        reply: events.Event | None = None
        while not isinstance(reply, events.NoResponders):  # The server may not have noticed yet.
            assert await answers.send("weather", subject, b"", queue, 2)
            reply = await queue.next(0.5)
            assert time.monotonic() - began < 5
    await bus.leave()
    assert guarded_server.violations() == []


async def test_calls_that_ask_for_an_instance_together_share_one_ping(nats_server: NatsServer) -> None:
    """Each learns that it is gone."""
    async with provisioned(nats_server.url) as bus:
        answers, queues = Answers(bus), [EventQueue(1 << 20) for _ in range(3)]
        with answers.to(queues[0]), answers.to(queues[1]), answers.to(queues[2]):
            sent = bus.nc.stats["out_msgs"]
            for number, queue in enumerate(queues):
                await answers.ping("weather", subjects.discover_ping("weather", INSTANCE), queue, number)
            assert bus.nc.stats["out_msgs"] == sent + 1
            assert [await queue.next(5) for queue in queues] == [events.NoResponders(number) for number in range(3)]


@pytest.mark.parametrize(
    ("headers", "data", "event"),
    [
        ({}, b"1", events.Result(7, b"1")),
        ({REPLY_HEADER: "result"}, b"1", events.Result(7, b"1")),
        ({REPLY_HEADER: "result", PARTS_HEADER: " 2 "}, b"", events.Result(7, b"", 2)),
        ({REPLY_HEADER: "result", PARTS_HEADER: "two"}, b"", events.Result(7, b"", -1)),
        ({REPLY_HEADER: "result", PARTS_HEADER: "9" * 5000}, b"", events.Result(7, b"", -1)),
        ({REPLY_HEADER: "part"}, b"12", events.Part(7, b"12")),
        ({REPLY_HEADER: "heartbeat"}, b"", events.Heartbeat()),
        ({REPLY_HEADER: "heartbeat"}, b'{"every_s": 0.5}', events.Heartbeat(0.5)),
        ({REPLY_HEADER: "heartbeat"}, b'{"every_s": 0.5, "instance": "n1"}', events.Heartbeat(0.5, "n1")),
        ({REPLY_HEADER: "heartbeat"}, b'{"every_s": -1}', events.Heartbeat()),
        ({REPLY_HEADER: "heartbeat"}, b'{"every_s": 0.5, "instance": "n1.>"}', events.Heartbeat()),
        ({REPLY_HEADER: "declined"}, b"", events.Declined(7, is_busy=True)),
        ({REPLY_HEADER: "declined"}, b'{"reason": "busy"}', events.Declined(7, is_busy=True)),
        ({REPLY_HEADER: "declined"}, b'{"reason": "late"}', events.Declined(7, is_busy=False)),
        ({REPLY_HEADER: "declined"}, b'{"reason": "of the future"}', events.Declined(7, is_busy=False)),
        ({REPLY_HEADER: "of the future"}, b"{}", events.Heartbeat()),
        ({REPLY_HEADER: "progress"}, b"{}", events.Progress(b"{}")),
        ({REPLY_HEADER: "artifact_chunk"}, b"{}", events.Piece(b"{}")),
        ({REPLY_HEADER: "content"}, "Grüße".encode(), events.Content("Grüße")),
        ({REPLY_HEADER: "content"}, b"", events.Content("")),
        ({REPLY_HEADER: "content"}, b"\xff", events.Content("\ufffd")),
        ({REPLY_HEADER: "content"}, b"x" * MAX_INLINE_BYTES, events.Content("x" * MAX_INLINE_BYTES)),
        ({"Status": "503"}, b"", events.NoResponders(7)),
        ({"Nats-Service-Error": "no paper"}, b"", events.Failure(ToolFailure(reason="no paper"))),
    ],
)
def test_a_message_is_one_event(headers: dict[str, str], data: bytes, event: Event) -> None:
    """An unknown kind is a sign of life of a newer tool."""
    assert event_of(cast("Msg", SimpleNamespace(headers=headers or None, data=data)), 7) == event


@pytest.mark.parametrize("character", ["x", "ü", "😀"])
def test_a_longer_content_is_cut_between_two_characters(character: str) -> None:
    """And bears a mark, within the limit."""
    data = character.encode() * (MAX_INLINE_BYTES + 1)
    event = event_of(cast("Msg", SimpleNamespace(headers={REPLY_HEADER: "content"}, data=data)), 7)
    assert isinstance(event, events.Content)
    assert event.is_cut
    assert MAX_INLINE_BYTES - 4 <= len(event.text.encode()) <= MAX_INLINE_BYTES
    assert set(event.text.removesuffix(CUT_MARK)) == {character}


@pytest.mark.parametrize(
    ("data", "reason", "code"),
    [
        (b'{"reason": "no paper", "code": "tool_refused"}', "no paper", "tool_refused"),
        (b'{"reason": "no paper", "code": "E42"}', "no paper", "tool_error"),
        (b'"no paper"', "no paper", "tool_error"),
        (b"no paper", "no paper", "tool_error"),
        (b"", "the tool failed and did not say why", "tool_error"),
        (b"\xff", "\ufffd", "tool_error"),
    ],
)
def test_a_failure_may_have_any_form(data: bytes, reason: str, code: str) -> None:
    """The model reads the reason; an unknown code of the tool is replaced by ours."""
    fault = ToolReported(read_failure(data)).fault()
    assert (fault.reason, fault.code) == (reason, code)


async def test_events_are_queued_in_order_up_to_a_limit() -> None:
    """Beyond it they are replaced by one that says so; events without data always fit."""
    queue = EventQueue(max_bytes=10)
    parts: list[Any] = [events.Part(1, b"12345"), events.Part(1, b"12345")]
    for part in parts:
        queue.put(part, 5)
    assert [await queue.next(1), await queue.next(1)] == parts
    assert await queue.next(0) is None
    for part in [*parts, *parts]:
        queue.put(part, 5)
    queue.put(events.RunEnded())
    assert await queue.next(1) == events.Flood()


async def test_a_tool_that_floods_fails_its_own_call_only(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """And a reply of an unknown kind is a sign of life."""

    async def flood(message: Msg) -> None:
        for _ in range(40):
            await client.publish(message.reply, b"x" * (1 << 20), headers={"Runwire-Reply": "part"})

    async def answer(message: Msg) -> None:
        await client.publish(message.reply, b"{}", headers={"Runwire-Reply": "of the future"})
        await asyncio.sleep(0.05)
        await message.respond(b"1")

    await client.subscribe("tool.flood", "flood", cb=flood)
    await client.subscribe("tool.calm", "calm", cb=answer)
    await start_runner(ToolSpec(name="flood"), ToolSpec(name="calm"), max_result_bytes=8 << 20)

    flooded, calm = await asyncio.gather(planner.call("flood", {}), planner.call("calm", {}))

    assert fault_of(flooded).code == "result_too_large"
    assert calm.observation == 1


async def test_no_tool_replies_in_place_of_another(planner: Planner, start_runner: Start, client: Client) -> None:
    """The name of the tool is in the reply subject, where only the tool may publish."""

    async def answer(message: Msg) -> None:
        _, _, instance, key = message.reply.split(".")
        for other in ("other", "tru", "true"):
            await client.publish(f"answer.{other}.{instance}.{key}", b"1")
        await client.publish(f"answer.true.{instance}.{key}", b"2")
        await message.respond(b"3")

    await client.subscribe("tool.true_one", "true_one", cb=answer)
    await client.subscribe("tool.other", "other", cb=replying(client, b"4"))
    await start_runner(ToolSpec(name="true_one"), ToolSpec(name="other"))
    assert (await planner.call("other", {})).observation == 4

    assert (await planner.call("true_one", {})).observation == 3


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (b"x" * (7 << 20), {"Runwire-Reply": "progress"}),
        (b"{}", {"Runwire-Reply": "heartbeat"} | {f"Header-{number}": "x" for number in range(200)}),
        (b"{}", {"Runwire-Reply": "x" * (100 << 10)}),
    ],
    ids=["data", "many headers", "a long header"],
)
async def test_a_tool_is_cut_off_at_its_first_reply_that_no_tool_sends(
    planner: Planner, start_runner: Start, client: Client, data: bytes, headers: dict[str, str]
) -> None:
    """A few more of that size would fill what the server keeps for the connection, and it would close it."""

    async def answer(message: Msg) -> None:
        await client.publish(message.reply, data, headers=headers)

    await client.subscribe("tool.large", "large", cb=answer)
    await start_runner(ToolSpec(name="large"))
    with capture_logs() as logged:
        fault_of(await planner.call("large", {}))
    assert [each["replies"] for each in logged if each["event"] == "tool_flooded"] == [1]


async def test_a_tool_that_floods_with_small_replies_is_cut_off(
    planner: Planner, start_runner: Start, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server delivers nothing of it for a second; its calls fail, and later ones work."""
    monkeypatch.setattr(nats, "_MAX_REPLIES_PER_S", 200)  # A busy machine does not send 2,000 in a second.
    calls = 0

    async def flood(message: Msg) -> None:
        nonlocal calls
        calls += 1
        for number in range(4_000 if calls == 1 else 0):
            await client.publish(message.reply, b"{}", headers={"Runwire-Reply": "heartbeat"})
            if number % 500 == 0:
                await client.flush()
        await message.respond(b"1")

    await client.subscribe("tool.flooding", "flooding", cb=flood)
    await client.subscribe("tool.quiet", "quiet", cb=replying(client, b"2"))
    await start_runner(ToolSpec(name="flooding"), ToolSpec(name="quiet"))

    with capture_logs() as logged:
        flooded, quiet = await asyncio.gather(planner.call("flooding", {}), planner.call("quiet", {}))

    assert fault_of(flooded).code == "result_too_large"
    assert quiet.observation == 2
    assert [each["tool"] for each in logged if each["event"] == "tool_flooded"] == ["flooding"]
    assert (await planner.call("flooding", {})).observation == 1


class Plot(BaseModel):
    """A result."""

    points: int


async def test_the_author_of_a_tool_reads_why_a_result_was_not_accepted(
    planner: Planner, start_runner: Start, serve_tools: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """In the tool's own log, whether the SDK found it or the tool runner. No value of the result is there."""

    @tool
    async def plotted() -> Plot:
        plot = Plot(points=1)
        plot.points = "canary"  # type: ignore[assignment]  # Only the tool runner sees this mistake.
        return plot

    @tool
    async def counted() -> int:
        return "canary"  # type: ignore[return-value]  # that is the mistake

    serve_tools(plotted, counted)
    await start_runner()

    for name in ("plotted", "counted"):
        assert fault_of(await planner.call(name, {})).code == "invalid_result"

    def logged() -> list[str]:
        return [text for record in caplog.records if "failed:" in (text := record.getMessage())]

    await wait_until(lambda: len(logged()) == 2, what="both failures are in the log")
    assert "does not fit its outputSchema" in next(text for text in logged() if text.startswith("plotted"))
    assert "canary" not in caplog.text
