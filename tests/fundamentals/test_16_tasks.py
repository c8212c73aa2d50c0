"""A run may spawn tasks that go on after its answer. What they find is reported once, in a run of the same session."""

import pytest

from contracts.wire.names import new_id
from runwire import Client, RunwireError, events
from runwire.client import OpenPause
from tests.fundamentals.conftest import answer_in
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.waiting import wait_until

QUESTION = "Look after Monday"
REPORT = "Background work has ended"
"""So the question of a report begins. It is longer than QUESTION, which the report is shown too, so it counts."""
FOUND = {"orders?": "7 orders are overdue", "invoices?": "3 invoices are open", "mails?": "nobody has written"}


def task(query: str, **more: object) -> Say:
    """A reply that spawns a subagent."""
    return action("task", mode="subagent", query=query, **more)


def scripted(model: ModelServer, *spawns: Say, done: str = "I am on it.", report: str = "All is well.") -> None:
    """Say these to the question, then the answer; each task finds its own, and the report ends at once."""
    model.by_turn(*spawns, answer(done), marker=QUESTION)
    model.by_turn(answer(report), marker=REPORT)
    for query, found in FOUND.items():
        model.by_turn(answer(found), marker=query)


async def until_reported(client: Client, session: str) -> list[events.SessionEvent]:
    """All events of the session, up to the end of the run that reports."""
    seen: list[events.SessionEvent] = []
    report = ""
    async for event in client.session_events(session):
        seen.append(event)
        report = event.run if isinstance(event, events.RunQueued) and event.cause == "report" else report
        if isinstance(event, events.RunEnded) and event.run == report:
            return seen
    raise AssertionError("the stream of a session does not end")


async def test_three_tasks_have_one_report(client: Client, model: ModelServer, session: str) -> None:
    """The run answers at once. The report comes after the last task, and its model is shown what all have found."""
    scripted(model, *(task(query, group="monday") for query in FOUND), report="Monday is looked after.")
    run = await client.chat(QUESTION, agent="spawning", session_id=session)
    assert answer_in(run) == "I am on it."

    seen = await until_reported(client, session)
    assert len([event for event in seen if isinstance(event, events.TaskSpawned)]) == 3
    assert {event.digest for event in seen if isinstance(event, events.TaskEnded)} == {*FOUND.values()}
    [reported] = [event for event in seen if isinstance(event, events.Reported)]
    assert (len(reported.tasks), reported.failed) == (3, [])
    report = await client.result(reported.report_id)
    assert (report.cause, report.payload and report.payload.raw_answer) == ("report", "Monday is looked after.")
    [shown] = [request.text for request in model.ledger if REPORT in request.text]
    assert all(found in shown for found in FOUND.values())


async def test_a_job_is_one_call_of_a_tool(client: Client, model: ModelServer, session: str) -> None:
    """No model is asked for it. What the tool returned is its answer."""
    job = action("task", mode="job", tool="count_inhabitants", tool_args={"city": "Lisbon"})
    scripted(model, job)
    await client.chat(QUESTION, agent="spawning", session_id=session)
    seen = await until_reported(client, session)

    [ended] = [event for event in seen if isinstance(event, events.TaskEnded)]
    assert "545796" in ended.digest
    run = await client.result(ended.task_id)
    assert (run.cause, run.usage and run.usage.model_calls, run.usage and run.usage.tool_calls) == ("job", 0, 1)
    assert len(model.ledger) == 3, "two requests of the run, one of the report"


async def test_a_person_applies_what_was_held(client: Client, model: ModelServer, session: str) -> None:
    """A group with HUMAN_GATED: nobody is shown its results before, and the report comes after."""
    scripted(model, *(task(query, group="monday", merge_strategy="HUMAN_GATED") for query in FOUND))
    await client.chat(QUESTION, agent="spawning", session_id=session)
    async for event in client.session_events(session):
        if isinstance(event, events.GroupEnded):
            break
    [group] = await client.groups(session)
    assert (group.status, group.awaits_decision, group.report_id) == ("complete", True, None)

    for _ in range(2):
        assert (await client.apply_group(group.group_id)).decision == "applied"
    with pytest.raises(RunwireError, match="already_decided"):
        await client.reject_group(group.group_id)
    seen = await until_reported(client, session)
    assert len([event for event in seen if isinstance(event, events.Reported)]) == 1
    await client.chat("And now?", agent="spawning", session_id=session)
    assert all(found in model.ledger[-1].text for found in FOUND.values()), "later runs are shown the results"


async def test_a_run_may_wait_for_the_results(client: Client, model: ModelServer, session: str) -> None:
    """With `retain_turn` its model reads them as it reads a tool's, and no report follows."""
    scripted(model, task("orders?", retain_turn=True), done="There are 7.")
    run = await client.chat(QUESTION, agent="spawning", session_id=session)
    assert answer_in(run) == "There are 7."
    assert FOUND["orders?"] in model.ledger[-1].text
    assert [listed.cause async for listed in client.list_runs(session_id=session)].count("report") == 0


async def test_a_person_is_asked_before_a_task_is_spawned(client: Client, model: ModelServer) -> None:
    """Unless the agents file says otherwise. The person also says whether the run waits for the task."""
    scripted(model, task("orders?"), task("mails?"), done="There are 7.")
    run = await client.chat(QUESTION, agent="hesitant", session_id=new_id())
    pause = waits_for_confirmation(run.pauses, "orders?")
    await client.answer(pause, {"approve": True, "retain_turn": True})
    pause = waits_for_confirmation((await client.wait(run.run_id)).pauses, "mails?")
    await client.reject(pause, note="nobody writes on Mondays")

    ended = await client.result(run.run_id)
    assert answer_in(ended) == "There are 7."
    assert FOUND["orders?"] in model.ledger[-1].text, "the person kept the turn"
    assert "nobody writes on Mondays" in model.ledger[-1].text
    assert [each.status for each in await client.tasks(ended.session_id or "")] == ["succeeded"]


def waits_for_confirmation(pauses: list[OpenPause], query: str) -> OpenPause:
    """Return the one pause, which asks whether this task may be spawned."""
    [pause] = pauses
    assert (pause.reason, pause.source, (pause.arguments or {})["query"]) == ("confirmation", "task", query)
    return pause


async def test_a_model_that_spawns_for_ever_is_stopped(client: Client, model: ModelServer, session: str) -> None:
    """By the number of tasks of a run and by their depth: the tasks of its tasks are not offered the action."""
    model.choose = lambda _: task("orders?")
    run = await client.chat(QUESTION, agent="greedy", session_id=session)
    assert run.reason == "budget_exhausted"
    failed = [
        event.failure.code
        async for event in client.follow(run.run_id)
        if isinstance(event, events.Observed) and event.failure
    ]
    assert {*failed} == {"too_many_tasks"}
    assert len([each for each in await client.tasks(session) if each.spawned_by == run.run_id]) == 2

    async def all_ended() -> bool:
        tasks = await client.tasks(session)
        return max(each.depth for each in tasks) > 1 and all(each.status != "running" for each in tasks)

    await wait_until(all_ended, what="the tasks of its tasks ended")
    assert max(each.depth for each in await client.tasks(session)) == 2


async def test_a_cancelled_run_takes_its_tasks_along(client: Client, model: ModelServer, session: str) -> None:
    """Also those of its tasks. Nobody reports on them."""
    scripted(model, task("orders?", retain_turn=True))
    model.by_turn(action("take_nap", seconds=50), marker="orders?")
    model.by_turn(task("orders?", retain_turn=True), marker=QUESTION)
    run_id = await client.start(QUESTION, agent="spawning", session_id=session)
    async for begun in client.follow(run_id):
        if isinstance(begun, events.RunStarted):  # There is a session now.
            break
    async for event in client.session_events(session):
        if isinstance(event, events.TaskSpawned):
            await client.cancel(run_id)
        if isinstance(event, events.TaskEnded):
            assert event.outcome == "cancelled"
            break
    assert (await client.result(run_id)).status == "cancelled"
    assert [listed.cause async for listed in client.list_runs(session_id=session)].count("report") == 0
