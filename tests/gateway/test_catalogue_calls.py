"""Calls of tools over HTTP, with a real planner and tool runner: the same checks as for a call of a model."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from contracts.wire.names import new_id
from services.gateway import catalogue
from services.gateway.auth.key_lines import new_key
from tests.support.gateways import Served, serving
from tests.support.model_server import ModelServer, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import planning, tools_at_work

CALLS: list[dict[str, Any]] = []
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
HIDDEN = {"type": "object", "properties": {"who": {"type": "string"}, "secret": {"type": "string", "artifact": True}}}
SPECS = {
    "pay": ToolSpec(name="pay", input_schema=SUM, requires_approval=True),
    "ask": ToolSpec(name="ask", input_schema=SUM),
    "apply": ToolSpec(name="apply", hidden=True),
    "look": ToolSpec(name="look", output_schema=HIDDEN),
    "break": ToolSpec(name="break"),
}
OUT = Fault(code="tool_error", reason="it is out")
RESULTS: dict[str, Any] = {"look": {"who": "ann", "secret": "s3"}, "break": OUT}
KEYS = {
    "free": new_key("acme"),
    "other": new_key("other"),
    "reads": new_key("acme", {"rights": ""}),
    "runs": new_key("acme", {"rights": "run"}),
    "asks": new_key("acme", {"tools": "ask"}),
    "agent": new_key("acme", {"agents": "asking"}),
}


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    CALLS.clear()
    with ModelServer() as running:
        yield running


@pytest.fixture
async def served(own_nats_server: NatsServer, provider: ModelServer, tmp_path: Path) -> AsyncIterator[Served]:
    url = own_nats_server.url
    agents = {
        "asking": {"tools": ["ask"]},
        "careful": {"approvals": [{"name": "sums", "tools": ["ask"]}]},
        "poor": {"limits": {"max_tool_calls": 0}},
    }

    def handler(name: str) -> Any:
        async def work(args: dict[str, Any]) -> Any:
            CALLS.append({name: args})
            return RESULTS.get(name, {"done": args})

        return work

    tools = {name: (spec, handler(name)) for name, spec in SPECS.items()}
    async with contextlib.AsyncExitStack() as stack:
        lines = ",".join(line for _, line in KEYS.values())
        gateway = await stack.enter_async_context(serving(url, api_keys=lines))
        planner = await stack.enter_async_context(planning(url, provider, agents=agents, folder=tmp_path))
        await stack.enter_async_context(tools_at_work(planner, url, tools))
        yield gateway


async def call(
    served: Served, tool: str, args: dict[str, Any], *, key: str = "free", once: str | None = None, **body: Any
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {KEYS[key][0]}", "Idempotency-Key": once or new_id()}
    return await served.http.post(f"/v1/tools/{tool}/call", json={"args": args, **body}, headers=headers)


async def test_a_call_gives_its_result_and_is_a_run(served: Served, provider: ModelServer) -> None:
    """The same key and body give the same run; no model is asked. What the schema hides is an artifact."""
    first, again = [await call(served, "ask", {"sum": 3}, once="k") for _ in range(2)]
    assert (first.status_code, again.json()) == (200, first.json())
    found = first.json()
    assert (found["status"], found["cause"]) == ("done", "call")
    assert found["payload"]["extra"] == {"result": {"done": {"sum": 3}}}
    assert (CALLS, provider.ledger, found["payload"]["warnings"]) == ([{"ask": {"sum": 3}}], [], [])
    for tool, args in (("ask", {"sum": 4}), ("look", {"sum": 3})):
        assert (await call(served, tool, args, once="k")).json()["code"] == "idempotency_conflict"
    shown = (await call(served, "look", {})).json()["payload"]
    assert (shown["extra"]["result"]["who"], shown["artifacts"]) == ("ann", {"look": {"secret": "s3"}})
    assert "s3" not in str(shown["extra"])
    refused = await call(served, "break", {})
    assert (refused.status_code, refused.json()["status"], refused.json()["code"]) == (200, "error", "tool_error")
    assert "it is out" in str(refused.json()["payload"]["warnings"])
    poor = (await call(served, "ask", {"sum": 3}, agent="poor")).json()
    assert poor["reason"] == "budget_exhausted"


CALLERS: list[tuple[str, str, dict[str, Any], int, str | None]] = [
    ("reads", "ask", {"sum": 1}, 403, "right_missing"),
    ("asks", "look", {}, 403, "not_allowed"),
    ("asks", "nowhere", {}, 403, "not_allowed"),
    ("runs", "apply", {}, 403, "right_missing"),
    ("free", "nowhere", {}, 404, "not_found"),
    ("free", "a.b", {}, 404, "not_found"),
    ("free", "ask", {"sum": "all"}, 422, "invalid_input"),
    ("free", "ask", {}, 422, "invalid_input"),
    ("free", "apply", {}, 200, None),
    ("asks", "ask", {"sum": 1}, 200, None),
    ("agent", "ask", {"sum": 1}, 200, None),
    ("agent", "look", {}, 200, "unknown_tool"),
]
"""Key, tool and arguments, and the status and code of the answer."""


async def test_who_may_call_what(served: Served) -> None:
    """The rights and lists of the key decide, then the tools of the agent. Nothing is called that may not be."""
    for key, tool, args, status, code in CALLERS:
        CALLS.clear()
        answered = await call(served, tool, args, key=key)
        assert (answered.status_code, answered.json().get("code")) == (status, code), answered.text
        assert len(CALLS) == (status == 200 and code is None)


@pytest.mark.parametrize(("tool", "agent"), [("pay", "default"), ("ask", "careful")])
async def test_a_call_waits_for_a_person(served: Served, tool: str, agent: str) -> None:
    """Where the tool or a rule of the agent asks for an approval: 202 with the pause, also again. Texts are refused."""
    waits = [await call(served, tool, {"sum": 9}, once="k", agent=agent) for _ in range(2)]
    assert [each.status_code for each in waits] == [202, 202]
    [pause] = waits[1].json()["pauses"]
    assert (pause["tool"], pause["arguments"], CALLS) == (tool, {"sum": 9}, [])
    url, headers = f"/v1/runs/{pause['run_id']}", {"Authorization": f"Bearer {KEYS['free'][0]}"}
    text = await served.http.post(f"{url}/input", json={"text": "Why?"}, headers=headers)
    assert (text.status_code, text.json()["code"]) == (422, "input_refused")
    decision = {"pause_id": pause["pause_id"], "token": pause["token"], "decision": "approve"}
    assert (await served.http.post(f"{url}/resume", json=decision, headers=headers)).status_code == 200
    ended = await call(served, tool, {"sum": 9}, once="k", agent=agent)
    assert (ended.status_code, ended.json()["payload"]["extra"]) == (200, {"result": {"done": {"sum": 9}}})
    assert [each[tool] for each in CALLS] == [{"sum": 9}]


async def test_a_call_that_takes_long_goes_on(
    served: Served, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """202 without a pause; a question that continues from it begins a session of its own. Models see no hidden tool."""
    monkeypatch.setattr(catalogue, "WAIT_S", 0.0)
    run = (await call(served, "ask", {"sum": 1}, once="slow")).json()
    assert (run["status"] in {"queued", "running", "done"}, run["pauses"]) == (True, [])
    provider.say(answer("Well."))
    body = {"query": "And?", "session_id": run["session_id"]}
    headers = {"Authorization": f"Bearer {KEYS['free'][0]}"}
    asked = await served.http.post("/chat", json=body, headers=headers)
    assert asked.json()["payload"]["raw_answer"] == "Well."
    assert "ask" in provider.ledger[0].text
    assert "apply" not in provider.ledger[0].text
