"""A schedule or another system starts runs without a person, each exactly once."""

import json
from datetime import UTC, datetime, timedelta

import httpx

from contracts.runs.requests import RunStatus
from runwire import Client
from runwire.client import webhook_headers
from tests.fundamentals.conftest import restart
from tests.support.model_server import ModelServer, answer
from tests.support.stack import Stack
from tests.support.waiting import wait_until


async def runs_of(client: Client, session: str, count: int = 1) -> list[RunStatus]:
    """Wait until so many runs of a session have ended, and return all that there are."""

    async def ended() -> list[RunStatus]:
        found = [run async for run in client.list_runs(session_id=session)]
        return found if sum(run.status == "done" for run in found) >= count else []

    return await wait_until(ended, what="a run was started and has ended")


async def test_a_schedule_fires_once(http: httpx.AsyncClient, client: Client, stack: Stack, session: str) -> None:
    """At its time, also if the planner dies meanwhile."""
    at = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    made = await http.post("/v1/schedules", json={"at": at, "run": {"query": "What is 6*7?", "session_id": session}})
    assert made.status_code == 201, made.text
    assert len(made.json()["next"]) == 1
    restart(stack, "planner-1")

    [run] = await runs_of(client, session)
    shown = (await http.get(f"/v1/schedules/{made.json()['schedule_id']}")).json()
    assert (shown["last_run"], shown["next"]) == (run.run_id, [])


async def test_a_schedule_says_when_it_fires(http: httpx.AsyncClient) -> None:
    """In the time zone that it was given. What cannot be understood is refused, with the field."""
    body = {"cron": "0 9 * * MON-FRI", "time_zone": "Europe/Lisbon", "run": {"query": "What happened?"}}
    made = (await http.post("/v1/schedules", json=body)).json()
    times = [datetime.fromisoformat(each) for each in made["next"]]
    assert len(times) == 3
    assert all((time.hour, time.minute, time.weekday() < 5) == (9, 0, True) for time in times)
    assert made["schedule_id"] in (await http.get("/v1/schedules")).text
    assert (await http.delete(f"/v1/schedules/{made['schedule_id']}")).status_code == 204
    assert (await http.get(f"/v1/schedules/{made['schedule_id']}")).status_code == 404

    for wrong in (
        {"cron": "61 * * * *"},
        {"time_zone": "Europe/Nowhere"},
        {"cron": None, "at": "2020-01-01T00:00:00Z"},
    ):
        refused = await http.post("/v1/schedules", json=body | wrong)
        assert refused.status_code == 422
        assert [error["field"] for error in refused.json()["errors"]] == [[*wrong][-1]]


async def test_a_webhook_that_is_delivered_twice_starts_one_run(
    http: httpx.AsyncClient, client: Client, model: ModelServer, session: str
) -> None:
    """The sender signs what it sends, and its model is shown that as data. A wrong signature starts nothing."""
    model.say(answer("Order 7 is late."))
    run = {"query": "What does this mean?", "agent": "scripted", "session_id": session}
    hook = (await http.post("/v1/schedules", json={"webhook": True, "run": run})).json()
    assert "secret" not in (await http.get(f"/v1/schedules/{hook['schedule_id']}")).json()
    body = json.dumps({"order": 7, "state": "late"}).encode()
    headers = webhook_headers(hook["secret"], body, "delivery-1")
    answers = [await http.post(hook["webhook_url"], content=body, headers=headers) for _ in range(2)]
    assert [each.status_code for each in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()

    [run_status] = await runs_of(client, session)
    assert run_status.run_id == answers[0].json()["run_id"]
    assert "late" in model.ledger[0].text
    forged = await http.post(hook["webhook_url"], content=b"{}", headers=headers)
    unknown = await http.post("/v1/hooks/" + "0" * 32, content=body, headers=headers)
    assert (forged.status_code, forged.content) == (unknown.status_code, unknown.content)
