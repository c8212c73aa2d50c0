"""What belongs to another tenant or user does not exist: on every route, in the same bytes as what never did."""

import itertools
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from contracts import subjects
from contracts.ids import new_id
from contracts.runs import RunRequested
from services.gateway.auth.key_lines import new_key
from services.gateway.stored_runs.queue import open_runs
from services.messaging.connection import Bus
from tests.support.gateways import Served, Writer, serving, unconnected_routes
from tests.support.nats_server import NatsServer
from tests.support.stores import Store

TENANT = "acme"
KEYS = {
    "acme": new_key(TENANT),
    "adam": new_key(TENANT, {"user": "adam", "name": "adam"}),
    "adam's second": new_key(TENANT, {"user": "adam"}),
    "eve": new_key(TENANT, {"user": "eve"}),
    "elsewhere": new_key("other", {"user": "adam"}),
}
BODIES: dict[str, Any] = {
    "/v1/runs/{run_id}/top-up": {"limits": {"max_steps": 5}},
}
"""A valid body for each route about one thing that needs one."""
UNKNOWN = {"run_id": "0" * 32, "artifact_id": "0" * 32}


def bearer(name: str) -> dict[str, str]:
    """The header that shows somebody's key."""
    return {"Authorization": f"Bearer {KEYS[name][0]}"}


@pytest.fixture
async def keyed(shared_nats: NatsServer) -> AsyncIterator[Served]:
    """A gateway of two tenants, one of them with keys of users."""
    async with serving(shared_nats.url, api_keys="\n".join(line for _, line in KEYS.values())) as served:
        yield served


@dataclass
class Things:
    """What Adam has, by the parameter that names it in an address."""

    waiting: str
    begun: Writer
    ended: Writer
    uploaded: str
    of_run: str

    def named(self, parameter: str) -> list[str]:
        """The values of a parameter that are Adam's."""
        return {
            "run_id": [self.waiting, self.begun.run, self.ended.run],
            "artifact_id": [self.uploaded, self.of_run],
        }[parameter]


@pytest.fixture
async def things(keyed: Served, bus: Bus, store: Store) -> Things:
    """Runs that wait, go on and ended; an upload, and a file of a run."""
    waiting = await keyed.http.post("/v1/runs", json={"query": "secret"}, headers=bearer("adam"))
    begun, ended = Writer(bus, TENANT), Writer(bus, TENANT)
    for writer in (begun, ended):
        await writer.open(user_id="adam")
    await ended.done()
    uploaded = await keyed.http.post(
        "/v1/artifacts", content=b"secret", params={"session_id": "his"}, headers=bearer("adam")
    )
    assert (waiting.status_code, uploaded.status_code) == (202, 201)
    of_run = await store.client.put(TENANT, b"secret", run=begun.run, session="his")
    return Things(waiting.json()["run_id"], begun, ended, uploaded.json()["artifact_id"], of_run.artifact_id)


async def ask(served: Served, name: str, method: str, path: str, value: str) -> tuple[int, bytes, dict[str, str]]:
    """Send a valid request about one thing; return all that the caller can compare."""
    address = re.sub(r"\{[a-z_]+\}", value, path)
    answer = await served.http.request(method, address, headers=bearer(name), json=BODIES.get(path))
    return answer.status_code, answer.content, {**answer.headers, "date": ""}


async def test_no_route_shows_or_changes_what_is_anothers(keyed: Served, bus: Bus, things: Things) -> None:
    """A new route is walked too: it needs its body above, if any, and a thing for each parameter of its address."""
    walked = 0
    for route in unconnected_routes():
        for method, parameter in itertools.product(route.methods or (), route.param_convertors):
            for theirs, name in itertools.product(things.named(parameter), ("eve", "elsewhere")):
                found = await ask(keyed, name, method, route.path, theirs)
                missing = await ask(keyed, name, method, route.path, UNKNOWN[parameter])
                assert found[0] == 404, (method, route.path, name)
                assert found == missing, (method, route.path, name)
                walked += 1
    assert walked >= 48
    for run in things.named("run_id"):
        assert (await keyed.http.get(f"/v1/runs/{run}", headers=bearer("adam's second"))).status_code == 200
        written = await bus.api(
            f"STREAM.INFO.{subjects.INBOX}", {"subjects_filter": subjects.control(TENANT, run, "x")[:-1] + "*"}
        )
        assert not written["state"].get("subjects"), "nobody has cancelled it"
    for artifact in things.named("artifact_id"):
        assert (await keyed.http.get(f"/v1/artifacts/{artifact}", headers=bearer("adam"))).content == b"secret"


async def test_lists_hold_what_is_the_callers_own(keyed: Served, bus: Bus, things: Things) -> None:
    """Adam's keys see his, Eve's hers, and a key of the whole tenant all of it."""
    hers = Writer(bus, TENANT)
    await hers.open(user_id="eve", session_id="his")
    file = await keyed.http.post("/v1/artifacts", content=b"hers", params={"session_id": "his"}, headers=bearer("eve"))
    expected = {
        "adam": set(things.named("artifact_id")),
        "adam's second": set(things.named("artifact_id")),
        "eve": {file.json()["artifact_id"]},
        "acme": {*things.named("artifact_id"), file.json()["artifact_id"]},
        "elsewhere": set(),
    }
    for name, artifacts in expected.items():
        listed = await keyed.http.get("/v1/artifacts", params={"session_id": "his"}, headers=bearer(name))
        assert {each["ref"]["artifact_id"] for each in listed.json()["artifacts"]} == artifacts, name
    of_run = await keyed.http.get(f"/v1/runs/{things.begun.run}/artifacts", headers=bearer("adam"))
    assert [each["ref"]["artifact_id"] for each in of_run.json()["artifacts"]] == [things.of_run]


async def test_a_run_of_a_pinned_key_is_its_users(keyed: Served, bus: Bus) -> None:
    """Whether the request names the user or not; the name of another one is refused, and nothing is stored."""
    before = (await open_runs(bus, TENANT)).requested
    for more in ({}, {"user_id": "adam"}):
        answer = await keyed.http.post("/v1/runs", json={"query": "q", **more}, headers=bearer("adam"))
        assert answer.status_code == 202
        stored = await stored_request(bus, answer.json()["run_id"])
        assert (stored.user_id, stored.is_user_pinned, stored.key_id) == ("adam", True, "adam")
    now = (await open_runs(bus, TENANT)).requested
    for route in ("/v1/runs", "/chat"):
        refused = await keyed.http.post(route, json={"query": "q", "user_id": "eve"}, headers=bearer("adam"))
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert refused.json()["errors"][0]["field"] == "user_id"
    assert len(now) == len(before) + 2
    assert (await open_runs(bus, TENANT)).requested == now
    free = await keyed.http.post("/v1/runs", json={"query": "q", "user_id": "anybody"}, headers=bearer("acme"))
    stored = await stored_request(bus, free.json()["run_id"])
    assert (stored.user_id, stored.is_user_pinned) == ("anybody", False)


async def stored_request(bus: Bus, run: str) -> RunRequested:
    """The request that waits for a planner."""
    message = await bus.last(subjects.REQUESTS, subjects.request(TENANT, run), 3)
    assert message is not None
    return RunRequested.model_validate_json(message.data)


async def test_idempotency_keys_belong_to_the_user(keyed: Served) -> None:
    """So they tell nobody what another user asked; two keys of one user share them."""
    shared = {"Idempotency-Key": new_id()}
    runs = {
        name: (await keyed.http.post("/v1/runs", json={"query": "q"}, headers={**bearer(name), **shared})).json()
        for name in KEYS
    }
    found = {name: answer["run_id"] for name, answer in runs.items()}
    assert found["adam"] == found["adam's second"]
    assert len(set(found.values())) == 4
    other = await keyed.http.post("/v1/runs", json={"query": "other"}, headers={**bearer("eve"), **shared})
    assert other.json()["code"] == "idempotency_conflict"
