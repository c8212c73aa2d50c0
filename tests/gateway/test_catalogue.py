"""`POST /v1/plans/check`: what is wrong with a plan, by the tools that are present. Nothing runs."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from contracts.runs.decisions import PlanReport
from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from services.gateway.auth.key_lines import new_key
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.support.gateways import Served, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

STRING = {"type": "string"}
FIND = ToolSpec(name="find_page", output_schema={"properties": {"id": STRING, "art": {"type": "object"}}})
SEND = ToolSpec(name="send_page", input_schema={"type": "object", "properties": {"id": STRING}})


@pytest.fixture(autouse=True)
async def tools(bus: Bus) -> AsyncIterator[None]:
    bucket = Bucket(bus, keys.CATALOGUE_BUCKET)
    for spec in (FIND, SEND):
        await bucket.put(keys.tool_spec(spec.digest()), spec)
        await bucket.put(keys.live_tool(spec.name), spec)
    yield
    for spec in (FIND, SEND):
        await bucket.delete(keys.live_tool(spec.name))


async def check(served: Served, plan: Any, status: int = 200, **more: Any) -> dict[str, Any]:
    headers = more.pop("headers", {})
    answer = await served.http.post("/v1/plans/check", json={"plan": plan, **more}, headers=headers)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def are_present(served: Served) -> None:
    """Wait until the gateway knows both."""

    async def known() -> bool:
        return {FIND.name, SEND.name} <= served.parts.tools().keys()

    await wait_until(known, what="the gateway knows the tools")


def plan(template: str) -> dict[str, Any]:
    calls = [{"tool_name": FIND.name}, {"tool_name": SEND.name, "arguments": {"id": template}}]
    return {"type": "tool_calls", "reasoning": "r", "calls": calls}


async def test_a_plan_is_checked_by_the_present_tools(served: Served) -> None:
    """Errors for programs, and a line each for people."""
    await are_present(served)
    assert await check(served, plan("$0.output.id")) == PlanReport(valid=True, kind="tool_calls").model_dump()
    literal = await check(served, plan("$0.output.id") | {"calls": [{"tool_name": SEND.name, "arguments": {"id": 3}}]})
    assert [(each["argument"], each["error"]["type"]) for each in literal["errors"]] == [("id", "invalid_argument")]
    assert not literal["valid"]
    wrong = await check(served, plan("$0.output.idd"))
    assert (wrong["valid"], wrong["kind"]) == (False, "tool_calls")
    assert wrong["errors"][0]["error"] == {
        "type": "field_not_found",
        "tool_name": FIND.name,
        "tool": FIND.name,
        "field": "idd",
        "available_fields": ["id", "art"],
    }
    assert wrong["lines"] == [
        'Call 1 (send_page), argument id: template $0.output.idd - find_page has no output field "idd"; it has id, art'
    ]
    bare = {"calls": plan("$0.output.id")["calls"]}
    assert (await check(served, bare))["valid"]
    direct = await check(served, {"type": "direct_response", "content": "Hello"})
    assert (direct["valid"], direct["kind"]) == (True, "direct_response")
    wrong_values: list[Any] = ["text", None, [], {"type": "plan"}]
    for value in wrong_values:
        assert (await check(served, value))["kind"] == "invalid", value


async def test_templates_are_resolved_with_outputs(served: Served) -> None:
    """Values of the caller's own, exact and as deep as a body may be."""
    await are_present(served)
    number = 10**30
    given = plan("$0.output.art.n")
    found = await check(served, given, outputs=[{"art": {"n": number}}])
    assert found["resolved"] == [{}, {"id": number}]
    assert (await check(served, given, outputs=[{}]))["resolved"] == [{}, None]
    assert (await check(served, plan("$0.output.art.x"), outputs=[]))["lines"]
    deep: Any = 1
    for _ in range(190):
        deep = [deep]
    nested: Any = "$0.output.art"
    for _ in range(31):
        nested = [nested]
    given["calls"][1]["arguments"] = {"x": nested}
    (_, second) = (await check(served, given, outputs=[{"art": deep}]))["resolved"]
    assert json.dumps(second).count("[") == 190 + 31


async def test_only_the_tools_that_a_run_could_use_count(shared_nats: NatsServer) -> None:
    """Those that the request names, and those of the caller's key."""
    (pinned, line), (free, free_line) = new_key("default", {"tools": FIND.name}), new_key("default")
    async with serving(shared_nats.url, api_keys=f"{line},{free_line}") as served:
        await are_present(served)
        of_pinned, of_free = ({"Authorization": f"Bearer {key}"} for key in (pinned, free))
        assert (await check(served, plan("$0.output.id"), headers=of_free))["valid"]
        for limited in (
            await check(served, plan("$0.output.id"), headers=of_pinned),
            await check(served, plan("$0.output.id"), headers=of_free, tools=[FIND.name]),
        ):
            unknown = {"type": "unknown_tool", "tool_name": SEND.name, "available_tools": [FIND.name]}
            assert [error["error"] for error in limited["errors"]] == [unknown]
        refused = await check(served, plan("x"), 403, headers=of_pinned, tools=[SEND.name])
        assert (refused["code"], refused["errors"][0]["field"]) == ("not_allowed", "tools.0")
        missing = await check(served, plan("x"), 422, headers=of_free, tools=[FIND.name, "gone"])
        assert (missing["code"], missing["errors"][0]["field"]) == ("invalid_input", "tools.1")


async def test_the_limits_are_settings(shared_nats: NatsServer) -> None:
    """Of calls, of arguments and of depth."""
    limits = {"plan_max_calls": 2, "plan_max_argument_bytes": 1024, "plan_max_depth": 2}
    async with serving(shared_nats.url, **limits) as served:
        calls: list[dict[str, Any]] = [{"tool_name": "x", "arguments": {"x": "y" * 1024}}]
        calls.append({"tool_name": "x", "arguments": {"x": [[]]}})
        found = await check(served, {"calls": calls})
        assert [error["error"]["type"] for error in found["errors"]] == ["arguments_too_large", "too_deep"]
        found = await check(served, {"calls": [*calls, *calls]})
        assert [error["error"]["type"] for error in found["errors"]] == ["too_many_calls"]


async def test_bodies_are_bounded_and_strict(served: Served) -> None:
    """As those of the other routes."""
    post: Any = served.http.post
    for body, code in (
        (b"[", "invalid_input"),
        (b"{}", "invalid_input"),
        (b'{"plan": {}, "plans": 1}', "invalid_input"),
        (b'{"plan": {}, "tools": "x"}', "invalid_input"),
        (b'{"plan": {}, "outputs": {}}', "invalid_input"),
        (b'{"plan": "' + b"x" * (1 << 20) + b'"}', "body_too_large"),
        (b'{"plan": ' + b"[" * 300 + b"]" * 300 + b"}", "invalid_input"),
    ):
        answer: httpx.Response = await post("/v1/plans/check", content=body)
        assert answer.json()["code"] == code, body[:50]
    answer = await post("/v1/plans/check?x=1", json={"plan": {}})
    assert answer.status_code == 422


async def test_a_hostile_plan_delays_nobody(served: Served) -> None:
    """It is refused, or has an answer, of bounded size; and other requests are answered meanwhile."""
    await are_present(served)
    arguments = {"x": [f"$0.output.{number:x}" for number in range(700)]}
    found = await check(served, {"calls": [{"tool_name": FIND.name, "arguments": arguments}] * 40})
    assert not found["valid"]
    assert (len(found["errors"]), len(found["lines"])) == (100, 101)
    assert found["errors_left_out"] > 10_000
