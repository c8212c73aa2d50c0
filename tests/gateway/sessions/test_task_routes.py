"""Background tasks and groups over HTTP: lists, one of them, and what people change, with a session as it is stored."""

import asyncio

import pytest

from contracts.runs.events import PlannedCall, Step
from contracts.sessions.records import RunWaits, SessionDeleting
from contracts.sessions.tasks import GroupEnded, GroupSealed, ResultsMerged, TaskControlDone, TaskEnded
from contracts.wire.faults import Code, Fault
from contracts.wire.names import new_id
from services.gateway.runs import messages
from services.gateway.sessions import reader as sessions
from services.messaging.connection import Bus
from tests.support.gateways import Served, Writer, paused
from tests.support.session_writer import SessionWriter
from tests.support.tasks import a_task, answered, requests_to


@pytest.fixture
async def session(bus: Bus) -> SessionWriter:
    """A session whose first run has the turn."""
    writer = SessionWriter(bus, f"s {new_id()}")
    await writer.start()
    await writer.begin(new_id())
    return writer


async def test_tasks_are_listed_and_shown(served: Served, session: SessionWriter) -> None:
    """Oldest first, without results in lists; a task without a group is in none that is shown."""
    alone, first = await a_task(session), await a_task(session, "monday")
    second = await a_task(session, joins=first.run)
    await session.log(TaskEnded(task_id=alone.run, outcome="succeeded", digest="42"))
    in_session = {"session_id": session.session_id}
    listed = (await served.http.get("/v1/tasks", params=in_session)).json()["tasks"]
    assert [task["task_id"] for task in listed] == [alone.run, first.run, second.run]
    assert [task["status"] for task in listed] == ["succeeded", "running", "running"]
    assert [task["group_id"] for task in listed] == [None, first.run, first.run]
    assert {task["result"] for task in listed} == {""}
    ended = await served.http.get("/v1/tasks", params={**in_session, "status": "succeeded"})
    assert [task["task_id"] for task in ended.json()["tasks"]] == [alone.run]
    shown = (await served.http.get(f"/v1/tasks/{alone.run}")).json()
    assert (shown["result"], shown["session_id"], shown["query"]) == ("42", session.session_id, "how many?")
    groups = (await served.http.get("/v1/groups", params=in_session)).json()["groups"]
    assert [(group["group_id"], group["name"], group["status"]) for group in groups] == [(first.run, "monday", "open")]
    assert (await served.http.get(f"/v1/groups/{first.run}")).json() == groups[0]
    for path in (f"/v1/groups/{alone.run}", f"/v1/groups/{second.run}", f"/v1/tasks/{new_id()}", "/v1/tasks/x"):
        assert (await served.http.get(path)).status_code == 404
    for query in ({}, {"session_id": ""}, {**in_session, "status": "done"}, {**in_session, "limit": "1"}):
        assert (await served.http.get("/v1/tasks", params=query)).status_code == 422
    assert (await served.http.get("/v1/tasks", params={"session_id": "nobody's"})).status_code == 404


async def test_a_session_shows_its_tasks_and_what_they_wait_for(served: Served, session: SessionWriter) -> None:
    """Those that go on first, and a pause as the task's log has it."""
    going_on, ended = await a_task(session), await a_task(session, "monday", merge="HUMAN_GATED")
    await session.log(
        TaskEnded(task_id=ended.run, outcome="succeeded", digest="42"),
        GroupSealed(group_id=ended.run, by="run"),
        GroupEnded(group_id=ended.run, status="complete", awaits_decision=True),
    )
    call = PlannedCall(call_id="1-1", tool="pay", args={"sum": 9})
    await going_on.log(Step(step=1, node="pay", status="started", calls=[call]))
    await going_on.log(paused("1-1", 7, arguments={"sum": 9}))
    pause = {"pause_id": f"{7:032x}", "run_id": going_on.run, "reason": "approval", "source": "policy", "expires_at": 1}
    await session.log(RunWaits.model_validate({"run": going_on.run, "seq": 9, "waits": True, "pauses": [pause]}))
    await session.checkpoint()
    found = (await served.http.get(f"/v1/sessions/{session.session_id}")).json()
    assert [task["task_id"] for task in found["tasks"]] == [going_on.run, ended.run]
    assert [(group["group_id"], group["awaits_decision"]) for group in found["groups"]] == [(ended.run, True)]
    assert (found["open_tasks"], found["open_decisions"], found["open_pauses"]) == (1, 1, 1)
    (shown,) = found["pauses"]
    assert (shown["run_id"], shown["arguments"]) == (going_on.run, {"sum": 9})


async def test_a_change_is_carried_out_by_the_planner(served: Served, session: SessionWriter) -> None:
    """The answer is the task or group after it."""
    task = await a_task(session, "monday", merge="HUMAN_GATED")
    request, sealed = await answered(
        session, served.http.post(f"/v1/groups/{task.run}/seal"), GroupSealed(group_id=task.run, by="person")
    )
    assert (request.action, request.group_id, request.task_id, request.by) == ("seal", task.run, None, "")
    assert (sealed.status_code, sealed.json()["status"]) == (200, "sealed")
    ended = TaskEnded(task_id=task.run, outcome="cancelled")
    request, cancelled = await answered(session, served.http.post(f"/v1/tasks/{task.run}/cancel"), ended)
    assert (request.action, request.group_id, request.task_id) == ("cancel", None, task.run)
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    merged = ResultsMerged(group_id=task.run, tasks=[])
    for action, events in (("apply", [merged]), ("reject", []), ("cancel", [])):
        request, applied = await answered(session, served.http.post(f"/v1/groups/{task.run}/{action}"), *events)
        assert (request.action, applied.status_code, applied.json()["decision"]) == (action, 200, "applied")


async def test_a_change_may_be_refused(served: Served, session: SessionWriter) -> None:
    """With the code of the planner, or as what does not exist."""
    unknown: list[Code] = ["group_not_found", "task_not_found"]
    codes: list[Code] = ["group_not_complete", "already_decided", "nothing_held", "task_in_group", "already_ended"]
    for code in (*codes, *unknown):
        task = await a_task(session)
        fault = Fault(code=code, reason="it does not apply")
        _, refused = await answered(session, served.http.post(f"/v1/tasks/{task.run}/apply"), fault=fault)
        expected = (404, "not_found") if code in unknown else (409, code)
        assert (refused.status_code, refused.json()["code"]) == expected


async def test_a_repeated_change_counts_once(
    served: Served, session: SessionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same idempotency key is the same request, and gets its answer, also when it took the planner too long."""
    task = await a_task(session)
    keyed, path = {"Idempotency-Key": "one"}, f"/v1/tasks/{task.run}/cancel"
    with monkeypatch.context() as patch:
        patch.setattr(messages, "ANSWER_WAIT_S", 0.05)
        late = [await served.http.post(path, headers=keyed) for _ in range(2)]
    assert [(answer.status_code, answer.json()["status"]) for answer in late] == [(202, "running")] * 2
    stored = await requests_to(session)
    assert len({request.id for _, request in stored}) == 1
    ended = TaskEnded(task_id=task.run, outcome="cancelled")
    await session.log(ended, TaskControlDone(id=stored[0][1].id), by=f"INBOX:{stored[0][0]}")
    answer = await served.http.post(path, headers=keyed)
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert len(await requests_to(session)) == len(stored)
    for headers in ({"Idempotency-Key": "two"}, {}):
        with monkeypatch.context() as patch:
            patch.setattr(messages, "ANSWER_WAIT_S", 0.05)
            await served.http.post(path, headers=headers)
    assert len({request.id for _, request in await requests_to(session)}) == 3


async def test_what_is_no_change_is_refused(served: Served, session: SessionWriter) -> None:
    """A body with fields; a session that is being deleted. No request is stored."""
    task = await a_task(session)
    wrong = await served.http.post(f"/v1/tasks/{task.run}/cancel", json={"reason": "x"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "reason")
    await session.log(SessionDeleting())
    late = await served.http.post(f"/v1/tasks/{task.run}/cancel", json={})
    assert (late.status_code, late.json()["code"]) == (409, "session_deleting")
    assert await requests_to(session) == []


async def test_a_task_outlives_its_run(served: Served, session: SessionWriter) -> None:
    """Its session still knows it, and the caller names the session."""
    task = await a_task(session, "monday")
    assert (await served.http.delete(f"/v1/runs/{task.run}")).status_code == 202
    for noun in ("tasks", "groups"):
        assert (await served.http.get(f"/v1/{noun}/{task.run}")).status_code == 404
        found = await served.http.get(f"/v1/{noun}/{task.run}", params={"session_id": session.session_id})
        assert found.status_code == 200


async def test_the_tasks_of_a_run_without_a_session(served: Served, bus: Bus) -> None:
    """They are in the session of its own."""
    parent = Writer(bus)
    session = SessionWriter(bus, f"run-{parent.run}")
    await session.start()
    await session.begin(parent.run)
    task = await a_task(session)
    found = (await served.http.get(f"/v1/tasks/{task.run}")).json()
    assert (found["session_id"], found["spawned_by"]) == (session.session_id, parent.run)
    not_a_task = Writer(bus)
    await not_a_task.open(session_id=session.session_id)
    assert (await served.http.get(f"/v1/tasks/{not_a_task.run}")).status_code == 404


async def test_sessions_with_many_tasks_are_not_kept(
    served: Served, session: SessionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway's memory is bounded; they are read again."""
    monkeypatch.setattr(sessions, "MAX_KNOWN_TASKS", 2)
    for kept in (1, 1, 0):
        await a_task(session)
        reader = served.parts.sessions
        for _ in range(2):
            found = await reader.find(session.tenant, session.session_id)
            assert found is not None
            assert len(found.background.open_tasks()) == len(session.state.background.open_tasks())
            assert len(reader._known) == kept


async def test_many_requests_about_one_session_read_its_log_once(served: Served, session: SessionWriter) -> None:
    """Each reads and folds only what is new since the one before."""
    reader = served.parts.sessions
    await reader.find(session.tenant, session.session_id)
    for _ in range(100):
        await session.log(TaskControlDone(id=new_id()))
    found = await asyncio.gather(
        *(reader.find(session.tenant, session.session_id, is_current=True) for _ in range(300))
    )
    assert {each.seq for each in found if each is not None} == {session.state.seq}
    assert len({id(each) for each in found}) == 1
