"""`/mcp`: messages as clients of both eras send them, on the wire and by the official client."""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from tests.gateway.protocols.mcp.conftest import INITIALIZE, Mcp, messages_of
from tests.support.gateways import ROOT
from tests.support.model_server import answer
from tests.support.waiting import wait_until


def call(number: Any, name: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
    return request(number, "tools/call", {"name": name, "arguments": arguments or {}, **params})


def request(number: Any, method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def documented(mcp: Mcp) -> Iterator[tuple[str, dict[str, str]]]:
    """Address and headers of each file for clients in docs/mcp.md, with the gateway and a key of the test."""
    for block in re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8"), re.DOTALL):
        [servers] = json.loads(block).values()
        [entry] = servers.values()
        assert entry["type"] == "http"
        key = mcp.bearer("all")["Authorization"].removeprefix("Bearer ")
        headers = {name: value.replace("rw_…", key) for name, value in entry["headers"].items()}
        yield entry["url"].replace("http://127.0.0.1:8080", mcp.served.url), headers


@contextlib.asynccontextmanager
async def connected(mcp: Mcp, era: str, key: str = "all", **options: Any) -> Any:
    async with httpx2.AsyncClient(headers=mcp.bearer(key), timeout=20) as http:
        transport = streamable_http_client(mcp.url, http_client=http)
        async with Client(transport, mode=era, **options) as client:
            yield client


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_official_client(mcp: Mcp, era: str) -> None:
    """It lists, calls, and decides what waits for its person."""
    await lists_and_calls(mcp, era)
    await waits_for_a_person(mcp, era)


async def lists_and_calls(mcp: Mcp, era: str) -> None:
    """Tools in a fixed order with hints, a value with the same JSON as text, progress, an agent, and what was made."""
    async with connected(mcp, era) as client:
        listed = (await client.list_tools()).tools
        names = ["add", "endless", "forbidden", "pay", "run_agent_helper", "slow", "tell", "wait_for_run"]
        assert [tool.name for tool in listed] == names
        assert (listed[0].description, listed[4].description) == ("Adds.", "Helps.")
        assert (listed[0].annotations.read_only_hint, listed[2].annotations.read_only_hint) == (True, False)
        added = await client.call_tool("add", {"a": 1, "b": 2})
        assert (added.structured_content, json.loads(added.content[0].text)) == ({"sum": 3}, {"sum": 3})
        told = await client.call_tool("tell", {})
        assert (told.content[0].text, told.structured_content) == ("told", "told" if era == "auto" else None)
        seen: list[str | None] = []

        async def progressed(_progress: float, _total: float | None, message: str | None) -> None:
            seen.append(message)

        await client.call_tool("slow", {}, progress_callback=progressed)
        assert "slow: step 1" in seen
        mcp.provider.say(answer("Four."))
        asked = (await client.call_tool("run_agent_helper", {"query": "2+2?"})).structured_content
        assert (asked["answer"], asked["status"]) == ("Four.", "done")
        run = asked["run_id"]
        assert (await client.call_tool("wait_for_run", {"run_id": run})).structured_content == asked
        read = await client.read_resource(f"runwire://runs/{run}")
        assert json.loads(read.contents[0].text)["payload"]["raw_answer"] == "Four."
        for uri in ("runwire://runs/" + "0" * 32, "runwire://artifacts/x", "file:///etc/passwd"):
            with pytest.raises(MCPError, match="no such resource"):
                await client.read_resource(uri)
    async with connected(mcp, era, "runs") as client:
        assert [tool.name for tool in (await client.list_tools()).tools if tool.name not in names] == []
        for name in ("forbidden", "secret", "nowhere"):
            with pytest.raises(MCPError, match=f"no such tool: {name}"):
                await client.call_tool(name, {})
    async with connected(mcp, era, "agent") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["run_agent_helper", "wait_for_run"]


async def waits_for_a_person(mcp: Mcp, era: str) -> None:
    """The client's person decides where the protocol can ask; else the result says how it goes on."""
    asked: list[str] = []

    async def person(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "reject" if len(asked) == 1 else "approve"})

    async with connected(mcp, era, elicitation_callback=person) as client:
        paid = await client.call_tool("pay", {"a": 2, "b": 3})
        assert paid.is_error
        if era == "legacy":
            assert "wait_for_run" in paid.content[0].text
            run = paid.content[0].text.split("the run ")[1][:32]
            status = (await mcp.served.http.get(f"/v1/runs/{run}", headers=mcp.bearer("all"))).json()
            body = {**{name: status["pauses"][0][name] for name in ("pause_id", "token")}, "decision": "approve"}
            await mcp.served.http.post(f"/v1/runs/{run}/resume", json=body, headers=mcp.bearer("all"))
            paid = await client.call_tool("wait_for_run", {"run_id": run})
        else:
            assert 'pay({"a": 2, "b": 3})' in asked[0]
            paid = await client.call_tool("pay", {"a": 2, "b": 3})
        assert paid.structured_content == {"sum": 5}
        assert [name for name, _ in mcp.called].count("pay") == 1
    async with connected(mcp, era, "runs", elicitation_callback=person) as client:  # This key may not approve.
        assert "waits for a person" in (await client.call_tool("pay", {"a": 2, "b": 3})).content[0].text


WIRE: list[tuple[Any, dict[str, Any]]] = [
    (INITIALIZE, {"status": 200, "id": 0}),
    (request(1, "tools/list"), {"status": 200, "id": 1}),
    (request(2, "tools/list", {"cursor": "nonsense"}), {"error": -32602}),
    (request(3, "tools/list", []), {"error": -32602}),
    (request(4, "resources/list"), {"status": 200}),
    (request(5, "nothing/such"), {"error": -32601}),
    (request(None, "tools/list"), {"status": 400, "error": -32600}),
    (request(1.5, "tools/list"), {"status": 400, "error": -32600}),
    ([request(1, "ping")], {"status": 400, "error": -32600}),
    (b"{", {"status": 400, "error": -32700}),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"n": NaN}}', {"status": 400, "error": -32700}),
    ({"jsonrpc": "2.0", "method": "notifications/initialized"}, {"status": 202}),
    (call(6, "add", {"a": "1", "b": 2}), {"is_error": "args"}),
    (call(7, "add", {"a": 1}), {"is_error": "invalid_input"}),
    (request(8, "tools/call", {"name": "add", "arguments": '{"a": 1}'}), {"error": -32602}),
    (call(9, "run_agent_helper", {"query": "x", "agent": "default"}), {"is_error": "agent"}),
    (call(10, "wait_for_run", {"run_id": "0" * 32}), {"is_error": "not_found"}),
    (call("ten", "add", {"a": 1, "b": 2}), {"status": 200, "id": "ten"}),
    (call("ten", "add", {"a": 2, "b": 2}), {"is_error": "idempotency_conflict"}),
]


async def test_messages_on_the_wire(mcp: Mcp) -> None:
    """Each gets its status, its id with its type, and the code of what is wrong with it."""
    session = await mcp.session()
    for message, expected in WIRE:
        answered = await mcp.post(message, **session)
        found = messages_of(answered)[-1] if answered.content else {}
        shown = (message, answered.status_code, found)
        assert answered.status_code == expected.get("status", answered.status_code), shown
        assert found.get("id") == expected.get("id", found.get("id")), shown
        assert found.get("error", {}).get("code") == expected.get("error"), shown
        if "is_error" in expected:
            assert found["result"]["isError"], shown
            assert expected["is_error"] in found["result"]["content"][0]["text"], shown
    assert mcp.called == [("add", {"a": 1, "b": 2})]
    await sessions_belong_to_their_key(mcp)
    await progress_has_the_token_of_its_request(mcp)
    await the_files_for_clients_lead_here(mcp)
    assert (await mcp.served.http.get("/mcp", headers=mcp.bearer("all"))).status_code == 405


async def sessions_belong_to_their_key(mcp: Mcp) -> None:
    """Another key's id and an invented one are unknown; initialize opens one whatever it brings; none is needed."""
    session = await mcp.session()
    asked = call(1, "add", {"a": 1, "b": 2})
    for key, header in (("other", session), ("all", {"Mcp-Session-Id": "gone"})):
        assert (await mcp.post(asked, key, **header)).status_code == 404
    assert (await mcp.post(INITIALIZE, **{"Mcp-Session-Id": "gone"})).status_code == 200
    assert (await mcp.post(asked)).status_code == 200
    for accept in ("application/json", "application/*", ""):  # Clients that name no event streams get none.
        assert (await mcp.post(asked, Accept=accept)).json()["result"]["structuredContent"] == {"sum": 3}
    assert (await mcp.post(asked, "reads")).json()["code"] == "right_missing"


async def progress_has_the_token_of_its_request(mcp: Mcp) -> None:
    """With its type, and without a token there is none."""
    session, tokens = await mcp.session(), []
    for number, token in enumerate((0, "t-7", None), 1):
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        *notes, result = messages_of(await mcp.post(call(number, "slow", **meta), **session))
        assert (result["id"], result["result"]["structuredContent"]) == (number, {"sum": 3})
        tokens.append({json.dumps(each["params"]["progressToken"]) for each in notes})
    assert tokens == [{"0"}, {'"t-7"'}, set()]


async def the_files_for_clients_lead_here(mcp: Mcp) -> None:
    """Each of docs/mcp.md."""
    found = list(documented(mcp))
    assert len(found) == 2
    for url, headers in found:
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(url, http_client=http)
            async with Client(transport) as client:
                assert (await client.list_tools()).tools


async def test_a_cancelled_request_ends_its_run_alone(mcp: Mcp) -> None:
    """Not one of another session; before 2026-07-28 a lost connection ends nothing, and since then it does."""
    session, foreign = await mcp.session(), await mcp.session("other")
    going_on = asyncio.create_task(mcp.post(call(5, "endless"), **session))
    await wait_until(lambda: len(mcp.called) == 1, what="the tool works")

    def cancelled(number: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}

    for key, header, number in (("other", foreign, 5), ("all", session, 77), ("all", session, None)):
        assert (await mcp.post(cancelled(number), key, **header)).status_code == 202
    assert not going_on.done()
    assert (await mcp.post(cancelled(5), **session)).status_code == 202
    assert "cancelled" in messages_of(await going_on)[-1]["result"]["content"][0]["text"]
    lost = asyncio.create_task(mcp.post(call(6, "endless"), **session))
    await wait_until(lambda: len(mcp.called) == 2, what="the tool works")
    lost.cancel()
    async with connected(mcp, "auto") as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await client.call_tool("endless", {})

    async def statuses() -> list[str]:
        listed = (await mcp.served.http.get("/v1/runs", headers=mcp.bearer("all"))).json()["runs"]
        return [each["status"] for each in listed]

    async def one_goes_on() -> bool:
        return await statuses() == ["cancelled", "running", "cancelled"]

    await wait_until(one_goes_on, what="one goes on")
