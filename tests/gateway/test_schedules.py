"""Schedules over HTTP: what is refused, what is shown, and who may see it. No planner."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contracts.sessions.schedules import MAX_SCHEDULE_BYTES, Schedule
from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from services.gateway.auth.key_lines import new_key
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.support.gateways import Served, bearer, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

RUN = {"query": "What is new?"}
LATER = (datetime.now(UTC) + timedelta(days=400)).strftime("%Y-%m-%dT%H:%M:%S")
WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "no trigger": ({}, ["cron", "at", "webhook"]),
    "two triggers": ({"cron": "0 2 * * *", "at": f"{LATER}Z"}, ["cron", "at"]),
    "three triggers": ({"cron": "0 2 * * *", "at": f"{LATER}Z", "webhook": True}, ["cron", "at", "webhook"]),
    "an unknown zone": ({"cron": "0 2 * * *", "time_zone": "Europe/Atlantis"}, ["time_zone"]),
    "a zone that is a path": ({"cron": "0 2 * * *", "time_zone": "../../etc/passwd"}, ["time_zone"]),
    "a zone of a webhook": ({"webhook": True, "time_zone": "UTC"}, ["time_zone"]),
    "a cron of words": ({"cron": "every night"}, ["cron"]),
    "a minute that no hour has": ({"cron": "60 2 * * *"}, ["cron"]),
    "seconds": ({"cron": "* * * * * *"}, ["cron"]),
    "a date that no year has": ({"cron": "0 0 30 2 *"}, ["cron"]),
    "a past time": ({"at": "2020-01-01T00:00:00Z"}, ["at"]),
    "a time without a zone": ({"at": LATER}, ["at"]),
    "no time": ({"at": "tomorrow"}, ["at"]),
    "a day that no month has": ({"at": "2031-02-30T00:00:00Z"}, ["at"]),
    "a time beyond all clocks": ({"at": "9999-12-31T23:59:59Z"}, ["at"]),
    "another policy": ({"at": f"{LATER}Z", "missed": "all"}, ["missed"]),
    "an unknown field": ({"at": f"{LATER}Z", "every": "day"}, ["every"]),
    "a question that is not one": ({"at": f"{LATER}Z", "run": {"query": " "}}, ["run.query"]),
    "images": ({"at": f"{LATER}Z", "run": {**RUN, "images": [{"artifact_id": "0" * 32}]}}, ["run.images"]),
    "no question": ({"at": f"{LATER}Z", "run": {}}, ["run.query"]),
    "a tool that cannot be": ({"at": f"{LATER}Z", "run": {**RUN, "tools": ["a", "!"]}}, ["run.tools.1"]),
    "messages beside a session": (
        {"at": f"{LATER}Z", "run": {**RUN, "session_id": "s", "messages": [{"role": "user", "content": "x"}]}},
        ["run.messages", "run.session_id"],
    ),
}


async def created(served: Served, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    answer = await served.http.post("/v1/schedules", json={"run": RUN, **fields}, headers=headers)
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == f"/v1/schedules/{body['schedule_id']}"
    return body


async def test_what_is_refused_names_the_field(served: Served) -> None:
    """422, and nothing is stored."""
    for case, (body, fields) in WRONG.items():
        answer = await served.http.post("/v1/schedules", json={"run": RUN, **body})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), case
        assert sorted(each["field"] for each in answer.json()["errors"]) == sorted(fields), case


async def test_a_cron_shows_its_next_three_times(served: Served) -> None:
    """In its time zone, and UTC without one."""
    body = await created(served, cron="30 2 * * *", time_zone="Europe/Berlin", name="nightly", missed="run_once")
    assert (body["name"], body["missed"], body["run"], body["secret"]) == ("nightly", "run_once", RUN, None)
    times = [datetime.fromisoformat(text) for text in body["next"]]
    assert [(each.hour, each.minute) for each in times] == [(2, 30)] * 3 or any(each.hour == 3 for each in times)
    assert times[1].date() - times[0].date() == times[2].date() - times[1].date() == timedelta(days=1)
    utc = await created(served, cron="0 0 1 1 *")
    assert all(each.endswith("-01-01T00:00:00+00:00") for each in utc["next"])


async def test_a_one_off_takes_an_offset_or_a_zone(served: Served) -> None:
    """Without an offset the time is local."""
    body = await created(served, at=f"{LATER}+02:00")
    assert datetime.fromisoformat(body["at"]) == datetime.fromisoformat(f"{LATER}+02:00")
    assert body["next"] == [body["at"]]
    assert (await created(served, at=LATER, time_zone="Asia/Tokyo"))["at"] == f"{LATER}+09:00"


async def test_the_message_to_the_planner_is_stored(served: Served, bus: Bus) -> None:
    """It names the schedule, whose entry is stored before."""
    body = await created(served, at=f"{LATER}Z")
    found = await bus.last_from_leader(subjects.INBOX, subjects.control("default", body["schedule_id"], "set"))
    assert found is not None
    assert b'"schedule_set"' in found[1]


async def test_a_schedule_is_listed_shown_and_deleted(served: Served, bus: Bus) -> None:
    """Without the context of tools, which only tools see."""
    run = {**RUN, "tool_context": {"token": "s3cr3t"}, "session_id": "nights", "limits": {"max_steps": 3}}
    body = await created(served, run=run, cron="0 2 * * *")
    path = f"/v1/schedules/{body['schedule_id']}"
    shown = await served.http.get(path)
    assert "s3cr3t" not in shown.text
    assert shown.json()["run"] == {name: value for name, value in run.items() if name != "tool_context"}
    listed = (await served.http.get("/v1/schedules")).json()["schedules"]
    short = {**shown.json(), "next": shown.json()["next"][:1], "run": {"query": RUN["query"]}}
    assert listed[0] == short
    entry = await Bucket(bus, keys.RUNS_BUCKET).get(keys.schedule_entry("default", body["schedule_id"]))
    schedule = entry.parsed(Schedule)
    assert schedule is not None
    assert schedule.request.tool_context == {"token": "s3cr3t"}
    assert (await served.http.delete(path)).status_code == 204
    for method in ("GET", "DELETE"):
        assert (await served.http.request(method, path)).status_code == 404
    listed = (await served.http.get("/v1/schedules")).json()["schedules"]
    assert body["schedule_id"] not in [each["schedule_id"] for each in listed]


async def test_the_same_key_makes_one_schedule(served: Served) -> None:
    """Also where both requests arrive together; with another body it is refused. After a deletion it makes another."""
    headers = {"Idempotency-Key": new_id()}
    one, two = await asyncio.gather(*(created(served, headers, webhook=True) for _ in range(2)))
    assert one == two
    assert one["secret"].startswith("whsec_")
    other = await served.http.post("/v1/schedules", json={"run": RUN, "cron": "0 2 * * *"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert (await served.http.delete(f"/v1/schedules/{one['schedule_id']}")).status_code == 204
    assert (await created(served, headers, webhook=True))["secret"] != one["secret"]
    assert (await served.http.get(f"/v1/schedules/{one['schedule_id']}")).status_code == 200


async def test_a_repeated_request_finds_a_time_that_has_passed_since(served: Served) -> None:
    """Its first answer was lost."""
    headers = {"Idempotency-Key": new_id()}
    at = datetime.now(UTC) + timedelta(milliseconds=400)
    first = await created(served, headers, at=at.isoformat())
    await wait_until(lambda: datetime.now(UTC) > at, what="the time has passed")
    again = await created(served, headers, at=at.isoformat())
    assert (again["schedule_id"], again["next"]) == (first["schedule_id"], [])


async def test_a_schedule_is_small(served: Served) -> None:
    """A list of all of a tenant is read at once."""
    run = {**RUN, "llm_context": {"text": "x" * MAX_SCHEDULE_BYTES}}
    answer = await served.http.post("/v1/schedules", json={"run": run, "at": f"{LATER}Z"})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_deleted_schedules_do_not_count(shared_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key takes the room of others neither by making schedules nor by deleting them. Nor counts a repetition."""
    monkeypatch.setattr("services.gateway.schedules.MAX_SCHEDULES", 3)
    monkeypatch.setattr("services.gateway.schedules.MAX_SCHEDULES_PER_KEY", 2)
    (one, ones_line), (two, twos_line) = new_key("counted"), new_key("counted")
    body = {"run": RUN, "webhook": True}
    async with serving(shared_nats.url, api_keys=f"{ones_line},{twos_line}") as keyed:

        async def make(key: str, once: str | None = None) -> tuple[int, dict[str, Any]]:
            headers = {**bearer(key), "Idempotency-Key": once or new_id()}
            answer = await keyed.http.post("/v1/schedules", json=body, headers=headers)
            return answer.status_code, answer.json()

        for _ in range(4):
            _, made = await make(one)
            await keyed.http.delete(f"/v1/schedules/{made['schedule_id']}", headers=bearer(one))
        assert [(await make(one, once))[0] for once in ("1", "2", "3", "1")] == [201, 201, 429, 201]
        assert [(await make(two))[0] for _ in range(2)] == [201, 429]
        assert (await make(two))[1]["code"] == "too_many_schedules"


async def test_a_repeated_request_of_another_key_shows_no_secret(shared_nats: NatsServer) -> None:
    """It makes a webhook of its own."""
    (one, ones_line), (two, twos_line) = new_key("repeated"), new_key("repeated")
    body = {"run": RUN, "webhook": True}
    async with serving(shared_nats.url, api_keys=f"{ones_line},{twos_line}") as keyed:
        made = [
            (await keyed.http.post("/v1/schedules", json=body, headers={**bearer(key), "Idempotency-Key": "k"})).json()
            for key in (one, one, two)
        ]
    assert made[0] == made[1]
    assert made[0]["schedule_id"] != made[2]["schedule_id"]
    assert made[0]["secret"] != made[2]["secret"]


async def test_a_key_decides_what_its_schedules_may_do(shared_nats: NatsServer, bus: Bus) -> None:
    """As it does for runs; the errors name fields of the run."""
    limits = {"name": "limited", "user": "eva", "tools": "search", "agents": "night", "max_runs": "2"}
    key, line = new_key("ann", limits)
    other, others_line = new_key("ann", {"user": "bob"})
    async with serving(shared_nats.url, api_keys=f"{line},{others_line}") as keyed:
        of_others: dict[str, dict[str, Any]] = {
            "run.agent": {"agent": "default"},
            "run.tools.0": {"tools": ["pay"]},
            "run.user_id": {"user_id": "bob"},
        }
        for field, run in of_others.items():
            body = {"run": {**RUN, **run}, "cron": "0 2 * * *"}
            answer = await keyed.http.post("/v1/schedules", json=body, headers=bearer(key))
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (403, field)
        made = await created(keyed, bearer(key), cron="0 2 * * *")
        assert (made["key_id"], made["user_id"], made["run"]["agent"]) == ("limited", "eva", "night")
        entry = await Bucket(bus, keys.RUNS_BUCKET).get(keys.schedule_entry("ann", made["schedule_id"]))
        schedule = entry.parsed(Schedule)
        assert schedule is not None
        request = schedule.request
        assert (request.key_tools, request.is_user_pinned, schedule.max_runs) == (["search"], True, 2)
        assert (await keyed.http.get("/v1/schedules", headers=bearer(other))).json() == {"schedules": []}


async def test_an_unknown_schedule_is_not_found(served: Served) -> None:
    """Whatever its id looks like."""
    for schedule_id in ("x", "0" * 32, "*", "0" * 31 + "G"):
        assert (await served.http.get(f"/v1/schedules/{schedule_id}")).status_code == 404
