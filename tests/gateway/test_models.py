"""Models that a request names: those that planners know, and no other."""

import itertools

from contracts.artifacts import ModelProfile
from contracts.wire import keys
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.catalogue import key_subject
from tests.support.gateways import Served


async def profile(bus: Bus, model: str, *agents: str, ttl: str = "60") -> None:
    said = ModelProfile(model=model, images="seen", agents=list(agents))
    await bus.publish(key_subject(keys.model_key(model)), said.model_dump_json().encode(), {"Nats-TTL": ttl})


async def test_agents_are_listed_with_their_models(served: Served, bus: Bus) -> None:
    """Those of the planner that described its models last, not of one that was replaced a moment ago."""
    await profile(bus, "openai/before", "writer", ttl="45")
    await profile(bus, "openai/large", "writer")
    await profile(bus, "openai/small", "writer", "reader")
    listed = (await served.http.get("/v1/agents")).json()["agents"]  # Other tests describe models of other agents.
    agents = {agent["name"]: agent["models"] for agent in listed if agent["name"] in {"reader", "writer"}}
    assert agents == {"reader": ["openai/small"], "writer": ["openai/large", "openai/small"]}


UNKNOWN = ["oobabooga/http://127.0.0.1:9/x", "github_copilot/gpt-4", "mine", "openai/openai/mine", "*"]
IMPOSSIBLE = ["openai/mine\r\nX-Evil: 1", "openai/\x00", "openai/ mine", "", "x" * 201]


async def test_a_model_that_no_planner_names_is_refused(served: Served, bus: Bus) -> None:
    """With those that there are; nothing is accepted. An impossible name is refused whether anybody knows it or not."""
    await profile(bus, "openai/mine")
    for path, model in itertools.product(("/v1/runs", "/chat"), UNKNOWN + IMPOSSIBLE):
        answer = await served.http.post(path, json={"query": "?", "model": model})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
        error = answer.json()["errors"][0]
        assert error["field"] == "model"
        assert model in IMPOSSIBLE or "openai/mine" in error["message"]
        assert model not in error["message"] or model in {"mine", "*", ""}


async def test_a_known_model_is_taken(served: Served, bus: Bus) -> None:
    """And an accepted run stays accepted when its planner has gone."""
    name, key = f"openai/{new_id()}", {"Idempotency-Key": f"key-{new_id()}"}
    await profile(bus, name)
    first = await served.http.post("/v1/runs", json={"query": "?", "model": name}, headers=key)
    assert first.status_code == 202
    await profile(bus, "openai/other")
    await bus.publish(key_subject(keys.model_key(name)), b"", {"KV-Operation": "DEL"})
    again = await served.http.post("/v1/runs", json={"query": "?", "model": name}, headers=key)
    assert (again.status_code, again.json()["run_id"]) == (202, first.json()["run_id"])
    assert (await served.http.post("/v1/runs", json={"query": "?", "model": name})).status_code == 422


async def test_a_planner_may_open_all(served: Served, bus: Bus) -> None:
    """`RUNWIRE_MODELS=*`: whatever is named is for the planner to try."""
    await profile(bus, "*")
    try:
        assert (await served.http.post("/v1/runs", json={"query": "?", "model": "openai/whatever"})).status_code == 202
    finally:
        await bus.publish(key_subject(keys.model_key("*")), b"", {"KV-Operation": "DEL"})
