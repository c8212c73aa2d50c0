"""What belongs to another tenant or user does not exist: on every route, in the same bytes as what never did."""

import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contracts.runs.pages import PayloadProposed
from contracts.sessions.proposals import ProposalPlace
from contracts.wire import keys, subjects
from contracts.wire.names import new_id, own_session_id
from services.gateway.auth.caller import ALL_RIGHTS
from services.gateway.auth.guard import SIGNED_ROUTES
from services.gateway.auth.key_lines import new_key
from services.gateway.runs.quota import open_runs
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.support.gateways import Served, Writer, requested, serving, unconnected_routes
from tests.support.images import with_metadata
from tests.support.nats_server import NatsServer
from tests.support.session_writer import SessionWriter
from tests.support.stores import Store
from tests.support.tasks import a_task

TENANT = "acme"
ALL = ",".join(ALL_RIGHTS)
KEYS = {
    "acme": new_key(TENANT),
    "adam": new_key(TENANT, {"user": "adam", "name": "adam"}),
    "adam's second": new_key(TENANT, {"user": "adam"}),
    "eve": new_key(TENANT, {"user": "eve", "rights": ALL}),
    "elsewhere": new_key("other", {"user": "adam", "rights": ALL}),
    "no tools": new_key(TENANT, {"tools": "", "name": "no-tools"}),
    "no agent": new_key(TENANT, {"agents": "support", "name": "no-agent"}),
    "small budget": new_key(TENANT, {"max_tokens_per_day": "300", "name": "small-budget"}),
}
BODIES: dict[str, Any] = {
    "/v1/runs/{run_id}/top-up": {"limits": {"max_steps": 5}},
    "/v1/runs/{run_id}/resume": {"pause_id": "0" * 32, "token": "", "decision": "approve"},
    "/v1/runs/{run_id}/input": {"text": "and more"},
    "/v1/sessions/{session_id}/context": {"values": {"city": "Bern"}},
}
"""A valid body for each route about one thing that needs one."""
PNG = with_metadata("png")
UNKNOWN = {
    **dict.fromkeys(("run_id", "artifact_id", "task_id", "group_id", "schedule_id", "proposal_id"), "0" * 32),
    "session_id": "nobody's",
}


def is_no_change(path: str) -> bool:
    """Whether a route changes nothing of a run, or is no route of a key."""
    return path.endswith("/ticket") or path in SIGNED_ROUTES


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name][0]}"}


@pytest.fixture
async def keyed(shared_nats: NatsServer) -> AsyncIterator[Served]:
    """A gateway of two tenants, one of them with keys of users."""
    async with serving(shared_nats.url, api_keys="\n".join(line for _, line in KEYS.values())) as served:
        yield served


Things = dict[str, list[str]]
"""What Adam has, by the parameter that names it in an address."""


@pytest.fixture
async def things(keyed: Served, bus: Bus, store: Store) -> Things:
    """Runs that wait, go on and ended; a session; an upload, and files of a run and of the session."""
    waiting = await keyed.http.post("/v1/runs", json={"query": "secret"}, headers=bearer("adam"))
    begun, ended = Writer(bus, TENANT), Writer(bus, TENANT)
    for writer in (begun, ended):
        await writer.open(user_id="adam")
    proposal, operations = new_id(), [{"action": "delete", "row_id": 1}]
    await ended.log(
        PayloadProposed(payload_id=proposal, kind="data_proposal", summary="", data={"operations": operations})
    )
    await ended.done()
    await Bucket(bus, keys.RUNS_BUCKET).put(keys.proposal_entry(TENANT, proposal, ended.run), ProposalPlace())
    session = SessionWriter(bus, f"his-{new_id()}", TENANT, "adam")
    await session.start()
    await session.begin(begun.run)
    task = await a_task(session, "his")
    await session.enter()
    name = session.session_id
    uploaded = await keyed.http.post("/v1/artifacts", content=PNG, params={"session_id": name}, headers=bearer("adam"))
    assert (waiting.status_code, uploaded.status_code) == (202, 201)
    made = [
        await keyed.http.post("/v1/schedules", json={"run": {"query": "secret"}, **each}, headers=bearer("adam"))
        for each in ({"cron": "0 2 * * *"}, {"webhook": True})
    ]
    of_run = await store.client.put(TENANT, PNG, run=begun.run, session=name)
    of_session = await store.client.put(TENANT, PNG, session=name)
    runs = [waiting.json()["run_id"], begun.run, ended.run]
    return {
        "run_id": runs,
        "artifact_id": [of_run.artifact_id, of_session.artifact_id, uploaded.json()["artifact_id"]],
        "session_id": [name, own_session_id(runs[0]), own_session_id(ended.run)],
        "task_id": [task.run],
        "group_id": [task.run],
        "schedule_id": [each.json()["schedule_id"] for each in made],
        "proposal_id": [proposal],
        **{key: [] for key in ("name", "table_id", "row_id")},  # Of tools: all tenants have them.
    }


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
            for theirs, name in itertools.product(things[parameter], ("eve", "elsewhere")):
                found = await ask(keyed, name, method, route.path, theirs)
                missing = await ask(keyed, name, method, route.path, UNKNOWN[parameter])
                assert found[0] == 404, (method, route.path, name)
                assert found == missing, (method, route.path, name)
                walked += 1
    assert walked >= 90
    for run in things["run_id"]:
        assert (await keyed.http.get(f"/v1/runs/{run}", headers=bearer("adam's second"))).status_code == 200
        written = await bus.api(
            f"STREAM.INFO.{subjects.INBOX}", {"subjects_filter": subjects.control(TENANT, run, "x")[:-1] + "*"}
        )
        assert not written["state"].get("subjects"), "nobody has cancelled it"
    for artifact in things["artifact_id"]:
        assert (await keyed.http.get(f"/v1/artifacts/{artifact}", headers=bearer("adam"))).content == PNG
    for schedule in things["schedule_id"]:
        assert (await keyed.http.get(f"/v1/schedules/{schedule}", headers=bearer("adam"))).status_code == 200
    shown = await keyed.http.get(f"/v1/sessions/{things['session_id'][0]}", headers=bearer("adam"))
    assert shown.json()["context"] == {}


@pytest.mark.parametrize("name", ["no tools", "no agent", "small budget"])
async def test_no_route_changes_a_run_that_the_key_could_not_start(
    keyed: Served, bus: Bus, things: Things, name: str
) -> None:
    """What a key may do holds for every run that it touches, also through its session, task, group or schedule."""
    walked = 0
    for route in unconnected_routes():
        for method, parameter in itertools.product((route.methods or set()) - {"GET", "HEAD"}, route.param_convertors):
            for theirs in () if is_no_change(route.path) or parameter == "artifact_id" else things[parameter]:
                status, content, _ = await ask(keyed, name, method, route.path, theirs)
                assert (status, b'"not_allowed"' in content) == (403, True), (method, route.path, content)
                walked += 1
    assert walked >= 30
    for on_busy, status in (("steer", 403), ("cancel", 403), ("queue", 202)):
        question = {"query": "q", "session_id": things["session_id"][0], "on_busy": on_busy}
        answer = await keyed.http.post("/v1/runs", json=question, headers=bearer(name))
        assert answer.status_code == status, answer.text
    own = answer.json()["run_id"]
    assert (await requested(bus, own, TENANT)).may_change == own, "it waits for the turn, whoever has it then"
    assert (await keyed.http.post(f"/v1/runs/{own}/cancel", headers=bearer(name))).status_code == 202


async def test_tasks_of_another_session_do_not_exist(keyed: Served, things: Things) -> None:
    """Whether the caller names that session, or one of its own."""
    for name, noun in itertools.product(("eve", "elsewhere"), ("tasks", "groups")):
        own = {"session_id": own_session_id(new_id())}
        for path in (f"/v1/{noun}", f"/v1/{noun}/{things['task_id'][0]}"):
            answers = [
                await keyed.http.get(path, params=query, headers=bearer(name))
                for query in ({"session_id": things["session_id"][0]}, {"session_id": UNKNOWN["session_id"]}, own)
            ]
            assert {(answer.status_code, answer.content) for answer in answers} == {(404, answers[0].content)}
    shown = await keyed.http.get("/v1/tasks", params={"session_id": things["session_id"][0]}, headers=bearer("adam"))
    assert [task["task_id"] for task in shown.json()["tasks"]] == things["task_id"]


async def test_images_of_others_do_not_exist(keyed: Served, things: Things) -> None:
    """A question names them by their ids only, and gets what an unknown id gets."""
    for path, name in itertools.product(("/v1/runs", "/chat"), ("eve", "elsewhere")):
        for artifact in things["artifact_id"]:
            reasons = []
            for named in (artifact, UNKNOWN["artifact_id"]):
                question = {"query": "q", "images": [{"artifact_id": named}], "session_id": things["session_id"][0]}
                alone = {field: value for field, value in question.items() if field != "session_id"}
                answers = [await keyed.http.post(path, json=body, headers=bearer(name)) for body in (alone, question)]
                reasons.append([(answer.status_code, answer.content) for answer in answers])
            assert [status for status, _ in reasons[0]] == [422, 404 if name == "eve" else 422]
            assert reasons[0] == reasons[1]


async def test_no_conversation_continues_from_anothers_run(keyed: Served, things: Things) -> None:
    """The model would be told what was asked there. Neither does one join another user's session."""
    for run in things["run_id"]:
        answers = []
        for value in (run, UNKNOWN["run_id"]):
            body = {"query": "q", "session_id": own_session_id(value), "on_busy": "reject"}
            found = await keyed.http.post("/v1/runs", json=body, headers=bearer("eve"))
            answers.append((found.status_code, found.content))
        assert answers[0][0] == 404
        assert answers[0] == answers[1]
    joined = {"query": "q", "session_id": things["session_id"][0]}
    assert (await keyed.http.post("/v1/runs", json=joined, headers=bearer("eve"))).status_code == 404
    for mine in (joined, {"query": "q", "session_id": own_session_id(things["run_id"][2])}):
        assert (await keyed.http.post("/v1/runs", json=mine, headers=bearer("adam"))).status_code == 202


async def test_lists_hold_what_is_the_callers_own(keyed: Served, bus: Bus, things: Things) -> None:
    """Adam's keys see his, Eve's hers, and a key of the whole tenant all of it."""
    hers = Writer(bus, TENANT)
    await hers.open(user_id="eve", session_id=things["session_id"][0])
    in_session = {"session_id": things["session_id"][0]}
    refused = await keyed.http.post("/v1/artifacts", content=b"hers", params=in_session, headers=bearer("eve"))
    assert refused.status_code == 404
    for name in ("adam", "adam's second", "acme", "eve", "elsewhere"):
        artifacts = set() if name in {"eve", "elsewhere"} else set(things["artifact_id"])
        listed = await keyed.http.get("/v1/artifacts", params=in_session, headers=bearer(name))
        assert {each["ref"]["artifact_id"] for each in listed.json()["artifacts"]} == artifacts, name
        sessions = (await keyed.http.get("/v1/sessions", params={"limit": 100}, headers=bearer(name))).json()
        is_shown = things["session_id"][0] in {each["session_id"] for each in sessions["sessions"]}
        assert is_shown == bool(artifacts)
    of_run = await keyed.http.get(f"/v1/runs/{things['run_id'][1]}/artifacts", headers=bearer("adam"))
    assert [each["ref"]["artifact_id"] for each in of_run.json()["artifacts"]] == things["artifact_id"][:1]


async def test_a_run_of_a_pinned_key_is_its_users(keyed: Served, bus: Bus) -> None:
    """Whether the request names the user or not; the name of another one is refused, and nothing is stored."""
    before = await open_runs(bus, TENANT)
    for more in ({}, {"user_id": "adam"}):
        answer = await keyed.http.post("/v1/runs", json={"query": "q", **more}, headers=bearer("adam"))
        assert answer.status_code == 202
        stored = await requested(bus, answer.json()["run_id"], TENANT)
        assert (stored.user_id, stored.is_user_pinned, stored.key_id) == ("adam", True, "adam")
    now = await open_runs(bus, TENANT)
    for route in ("/v1/runs", "/chat"):
        refused = await keyed.http.post(route, json={"query": "q", "user_id": "eve"}, headers=bearer("adam"))
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert refused.json()["errors"][0]["field"] == "user_id"
    assert len(now) == len(before) + 2
    assert await open_runs(bus, TENANT) == now
    free = await keyed.http.post("/v1/runs", json={"query": "q", "user_id": "anybody"}, headers=bearer("acme"))
    stored = await requested(bus, free.json()["run_id"], TENANT)
    assert (stored.user_id, stored.is_user_pinned) == ("anybody", False)


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
