"""Hearing what tools say: parts, failures in any form, and floods."""

import asyncio

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.tools import ToolSpec
from services.tool_runner.errors import ResultTooLarge, ToolReported
from services.tool_runner.transports.nats import CallEvent
from services.tool_runner.transports.result_parts import ResultBody, ResultParts, failure_of

from .conftest import Planner, Start


def read(whole: ResultBody | None) -> bytes:
    """All of a result."""
    assert whole is not None
    try:
        return whole.read()
    finally:
        whole.close()


def test_parts_beyond_memory_come_back_in_order() -> None:
    """They wait in a file."""
    parts = ResultParts("painter", 10 << 20)
    for number in range(6):
        parts.add(CallEvent("part", bytes([number]) * (1 << 20), "1"))
    assert read(parts.joined(CallEvent("result", b"", "1", "6"))) == b"".join(
        bytes([number]) * (1 << 20) for number in range(6)
    )


def test_parts_of_two_answers_do_not_mix() -> None:
    """Each question has its own; one whose parts are incomplete gives nothing."""
    parts = ResultParts("painter", 100)
    for key, data in (("1", b"a"), ("2", b"x"), ("1", b"b"), ("2", b"y")):
        parts.add(CallEvent("part", data, key))

    assert read(parts.joined(CallEvent("result", b"", "1", "2"))) == b"ab"
    assert parts.joined(CallEvent("result", b"", "2", "3")) is None
    assert parts.joined(CallEvent("result", b"", "3", "1")) is None
    assert read(parts.joined(CallEvent("result", b"whole", "4"))) == b"whole"
    parts.close()


def test_a_result_has_a_limit() -> None:
    """In one piece or in parts; parts that were sent again count anew."""
    parts = ResultParts("painter", 10)
    parts.add(CallEvent("part", b"123456", "1"))
    assert parts.joined(CallEvent("result", b"", "1", "2")) is None
    parts.add(CallEvent("part", b"123456", "2"))
    with pytest.raises(ResultTooLarge):
        parts.add(CallEvent("part", b"12345", "2"))
    with pytest.raises(ResultTooLarge):
        parts.joined(CallEvent("result", b"12345678901", "3"))
    parts.close()


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
    """The model reads the words; a code of the tool's own is not one of ours."""
    fault = ToolReported(failure_of(CallEvent("failure", data))).fault()
    assert (fault.reason, fault.code) == (reason, code)


async def test_a_tool_that_floods_fails_its_own_call_only(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """And a reply of a kind that we do not know is a sign of life."""

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

    assert flooded.failure is not None
    assert flooded.failure.code == "result_too_large"
    assert calm.observation == 1


async def test_parts_that_were_lost_are_asked_for_once(planner: Planner, start_runner: Start, client: Client) -> None:
    """The copy that holds the result sends it again; a tool that cannot is told to have failed."""

    async def incomplete(message: Msg) -> None:
        await client.publish(message.reply, b"12", headers={"Runwire-Reply": "part"})
        await client.publish(message.reply, b"", headers={"Runwire-Reply": "result", "Runwire-Parts": "2"})

    async def complete(message: Msg) -> None:
        for part in (b"12", b"34"):
            await client.publish(message.reply, part, headers={"Runwire-Reply": "part"})
        await client.publish(message.reply, b"", headers={"Runwire-Reply": "result", "Runwire-Parts": "2"})

    for name in ("lossy", "torn"):
        await client.subscribe(f"tool.{name}", name, cb=incomplete)
    await client.subscribe("tool.lossy.status", cb=complete)
    await start_runner(ToolSpec(name="lossy"), ToolSpec(name="torn"))

    assert (await planner.call("lossy", {})).observation == 1234
    torn = await planner.call("torn", {})
    assert torn.failure is not None
    assert torn.failure.code == "invalid_result"
