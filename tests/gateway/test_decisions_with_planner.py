"""Decisions over HTTP, with a real planner and tool runner: one payment that a person approves."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from contracts.tools.messages import ToolSpec
from tests.support.gateways import Served, serving
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import planning, tools_at_work

PAYMENTS: list[dict[str, Any]] = []
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
PAY = ToolSpec(name="pay", description="Pay a sum.", input_schema=SUM, requires_approval=True)


async def pay(args: dict[str, Any]) -> Any:
    """Note a payment."""
    PAYMENTS.append(args)
    return {"paid": args["sum"]}


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    """A scripted provider of models: it pays 9, and says so."""
    PAYMENTS.clear()
    with ModelServer() as running:
        running.say(action("pay", sum=9), answer("Paid."))
        yield running


@pytest.fixture
async def served(own_nats_server: NatsServer, provider: ModelServer) -> AsyncIterator[Served]:
    """A gateway with a planner and the tool."""
    url = own_nats_server.url
    async with (
        serving(url) as gateway,
        planning(url, provider) as planner,
        tools_at_work(planner, url, {"pay": (PAY, pay)}),
    ):
        yield gateway


async def test_a_payment_is_made_once_and_as_it_was_approved(served: Served) -> None:
    """Every way to get around the approval is refused with its reason; the edited sum is what is paid."""
    waiting = (await served.http.post("/chat", json={"query": "Pay", "session_id": "desk"})).json()
    assert waiting["status"] == "waiting"
    (pause,) = waiting["pauses"]
    assert (pause["tool"], pause["arguments"]) == ("pay", {"sum": 9})
    run, seen = waiting["run_id"], {"pause_id": pause["pause_id"], "token": pause["token"]}
    assert (await served.http.get("/v1/sessions/desk")).json()["pauses"] == [pause]

    async def decide(key: str | None = None, **more: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return await served.http.post(f"/v1/runs/{run}/resume", json={**seen, **more}, headers=headers)

    refusals: list[tuple[dict[str, Any], int, str]] = [
        ({"decision": "answer", "input": "yes"}, 422, "invalid_decision"),
        ({"decision": "edit", "args": {"sum": "all"}}, 422, "invalid_input"),
        ({"decision": "approve", "token": "0.1.0"}, 409, "pause_changed"),
        ({"decision": "approve", "pause_id": "0" * 32}, 404, "not_found"),
    ]
    for body, status, code in refusals:
        refused = await decide(**body)
        assert (refused.status_code, refused.json()["code"]) == (status, code), refused.text
    assert PAYMENTS == []
    edit = {"decision": "edit", "args": {"sum": 8}, "note": "a discount"}
    decided, repeated = await decide("key", **edit), await decide("key", **edit)
    assert (decided.status_code, repeated.content) == (200, decided.content)
    assert (await decide("key", decision="approve")).json()["code"] == "idempotency_conflict"
    result = await served.http.post("/chat", json={"query": "And?", "session_id": "desk", "on_busy": "queue"})
    assert result.status_code == 200
    assert PAYMENTS == [{"sum": 8}]
    assert (await served.http.get(f"/v1/runs/{run}")).json()["payload"]["raw_answer"] == "Paid."
    assert (await decide("key", **edit)).content == decided.content
    ended = await decide(decision="approve")
    assert (ended.status_code, ended.json()["code"]) == (409, "run_ended")
    assert PAYMENTS == [{"sum": 8}]
