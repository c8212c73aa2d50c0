"""A run that was deleted is not found from then on, under any address; who may not see it may not delete it."""

from typing import Any

import httpx

from contracts.runs.requests import RunDeletion, RunStatus
from contracts.wire import keys
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.gateways import Served, Writer
from tests.support.stores import Store


async def addresses(served: Served, run: str, artifact: str) -> list[httpx.Response]:
    """What is said about a run and one of its artifacts."""
    return [
        await served.http.request(method, path)
        for method, path in (
            ("GET", f"/v1/runs/{run}"),
            ("GET", f"/v1/runs/{run}/events"),
            ("GET", f"/v1/runs/{run}/artifacts"),
            ("GET", f"/v1/artifacts/{artifact}"),
            ("POST", f"/v1/runs/{run}/cancel"),
            ("DELETE", f"/v1/runs/{run}"),
        )
    ]


async def test_it_is_not_found_from_then_on(served: Served, bus: Bus, store: Store) -> None:
    """Before any planner has read the mark: status, events, artifacts, lists, and a second deletion."""
    session, writer, other = new_id(), Writer(bus), Writer(bus)
    refs = {}
    for each in (writer, other):
        at = (await _opened(each)).requested_at
        await each.done()
        status = RunStatus(run_id=each.run, status="done", session_id=session, requested_at=at, ended_at=2)
        await bus.publish(f"$KV.runs.{keys.run_key('default', at, each.run)}", status.model_dump_json().encode())
        refs[each.run] = await store.client.put("default", b"x" * 50, session=session, run=each.run)
    missing = await served.http.get(f"/v1/runs/{new_id()}")
    assert (await served.http.delete(f"/v1/runs/{writer.run}")).status_code == 202
    for answer in await addresses(served, writer.run, refs[writer.run].artifact_id):
        assert (answer.status_code, answer.content) == (404, missing.content), answer.url
    listed = (await served.http.get(f"/v1/runs?session_id={session}")).json()["runs"]
    assert [run["run_id"] for run in listed] == [other.run]
    of_session = (await served.http.get(f"/v1/artifacts?session_id={session}")).json()["artifacts"]
    assert [each["run_id"] for each in of_session] == [other.run]
    assert (await served.http.get(f"/v1/runs/{other.run}")).status_code == 200


async def _opened(writer: Writer) -> RunStatus:
    started = writer.started()
    await writer.log(started)
    return RunStatus(run_id=writer.run, status="running", requested_at=started.request.requested_at)


async def test_a_run_that_waits_is_deleted_too(served: Served, bus: Bus) -> None:
    """The mark has the time of the request, with which the key in the index begins."""
    run = (await served.http.post("/v1/runs", json={"query": "x"})).json()["run_id"]
    requested_at = (await served.http.get(f"/v1/runs/{run}")).json()["requested_at"]
    assert (await served.http.delete(f"/v1/runs/{run}")).status_code == 202
    assert (await served.http.get(f"/v1/runs/{run}")).status_code == 404
    message = await bus.last("KV_runs", f"$KV.runs.{keys.run_deletion('default', run)}")
    assert message is not None
    assert RunDeletion.model_validate_json(message.data).requested_at == requested_at


async def test_its_key_does_not_bring_it_back(served: Served) -> None:
    """409: a late repetition of the question would begin the run again."""
    asked: dict[str, Any] = {"json": {"query": "x"}, "headers": {"Idempotency-Key": new_id()}}
    run = (await served.http.post("/v1/runs", **asked)).json()["run_id"]
    assert (await served.http.delete(f"/v1/runs/{run}")).status_code == 202
    again = await served.http.post("/v1/runs", **asked)
    assert (again.status_code, again.json()["code"]) == (409, "idempotency_conflict")
    assert "deleted" in again.json()["detail"]
