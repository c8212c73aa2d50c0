"""Runs of one session take turns, on a real server, through the planner."""

from contracts.runs.events import Asked
from contracts.runs.requests import RunStatus
from contracts.sessions.records import SessionContextRequested, SessionDeletionRequested, SessionEntry
from contracts.wire import keys, subjects
from contracts.wire.ids import new_id, own_session_id
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.planner.logs.session_log import SessionAddress
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.run_services import Planning
from tests.support.session_logs import events_of, idle, is_queued, session_of
from tests.support.waiting import wait_until

SLOW = Say(text=answer("one").text, delay_s=0.7)
ENDLESS = Say(silent=True)


async def busy(planning: Planning, session_id: str) -> str:
    """Ask a first run, and return its id once its model is asked."""
    run = await planning.ask("First?", session_id=session_id)
    await planning.until(run, lambda event: isinstance(event, Asked))
    return run


async def entry_of(bus: Bus, session_id: str) -> SessionEntry | None:
    """The session's entry in the index."""
    found = await Bucket(bus, keys.RUNS_BUCKET).latest(keys.session_entry.pattern(tenant="default"))
    entries = [entry.parsed(SessionEntry) for entry in found]
    return next((each for each in entries if each is not None and each.session_id == session_id), None)


async def status_of(bus: Bus, run: str) -> RunStatus | None:
    """The run's entry in the index."""
    for entry in await Bucket(bus, keys.RUNS_BUCKET).latest(keys.run_entry.pattern(tenant="default")):
        status = entry.parsed(RunStatus)
        if status is not None and status.run_id == run:
            return status
    return None


async def test_a_second_request_waits_for_the_first(plan: Plan, provider: ModelServer) -> None:
    """It begins when the first run has ended, with a deadline of its own, and knows the record of its begin."""
    planning, session_id = await plan(), new_id()
    provider.say(SLOW, answer("two"))
    first = await planning.ask("First?", session_id=session_id)
    second = await planning.ask("Second?", session_id=session_id, limits={"deadline_s": 30})
    await planning.until(second, is_queued)
    one, two = await planning.ended(first), await planning.ended(second)
    assert (one.end.raw_answer, two.end.raw_answer) == ("one", "two")
    assert one.facts()[0] == "run_started"
    assert two.facts()[:3] == ["queued", "run_started", "asked"]
    started = two.of("run_started")[0]
    assert started.deadline_at > started.request.requested_at + 30_000 + 400
    session = await idle(planning.bus, session_id)
    assert [(turn.question, turn.answer) for turn in session.turns] == [("First?", "one"), ("Second?", "two")]
    assert one.of("run_started")[0].conversation_seq < started.conversation_seq < session.seq
    assert await events_of(planning.bus, session_id) == [
        *("session_started", "run_queued", "run_begun", "run_queued"),
        *("run_ended", "run_begun", "run_ended"),
    ]
    entry = await entry_of(planning.bus, session_id)
    assert entry is not None
    assert (entry.runs, entry.current_run, entry.usage.model_calls) == (2, None, 2)
    timers = await planning.bus.api(
        "STREAM.INFO.TIMERS", {"subjects_filter": subjects.timer.pattern(tenant="default", run=second)}
    )
    assert not timers["state"].get("subjects")


async def test_the_next_question_begins_right_after_the_end(plan: Plan, provider: ModelServer) -> None:
    """Also where the session has not taken the end of the run before it."""
    planning, session_id = await plan(), new_id()
    provider.say(*(answer(str(number)) for number in range(10)))
    stories = [await planning.tell(f"{number}?", session_id=session_id) for number in range(10)]
    assert all(story.facts()[0] == "run_started" for story in stories)
    session = await idle(planning.bus, session_id)
    assert [turn.answer for turn in session.turns] == [str(number) for number in range(10)]


async def test_many_requests_at_once_run_one_after_another(plan: Plan, provider: ModelServer) -> None:
    """In some order, each once."""
    planning, session_id = await plan(), new_id()
    provider.say(*(answer("yes") for _ in range(8)))
    runs = [await planning.ask(f"{number}?", session_id=session_id) for number in range(8)]
    for run in runs:
        assert (await planning.ended(run)).end.raw_answer == "yes"
    session = await idle(planning.bus, session_id)
    assert sorted(turn.run for turn in session.turns) == sorted(runs)
    events = [each for each in await events_of(planning.bus, session_id) if each in {"run_begun", "run_ended"}]
    assert events == ["run_begun", "run_ended"] * 8


async def test_a_request_may_be_refused_while_another_runs(plan: Plan, provider: ModelServer) -> None:
    """With `session_busy`; the first run does not notice."""
    planning, session_id = await plan(), new_id()
    provider.say(SLOW)
    first = await busy(planning, session_id)
    story = await planning.tell("Now?", session_id=session_id, on_busy="reject")
    assert (story.facts(), story.end.code) == (["queued", "error"], "session_busy")
    assert (await planning.ended(first)).end.raw_answer == "one"
    assert [turn.run for turn in (await idle(planning.bus, session_id)).turns] == [first]


async def test_a_request_may_take_the_place_of_another(plan: Plan, provider: ModelServer) -> None:
    """It begins once the other one is cancelled, before those that wait."""
    planning, session_id = await plan(), new_id()
    provider.say(ENDLESS, answer("urgent"), answer("patient"))
    first = await busy(planning, session_id)
    patient = await planning.ask("Later?", session_id=session_id)
    await planning.until(patient, is_queued)
    urgent = await planning.ask("Now?", session_id=session_id, on_busy="cancel")
    assert (await planning.ended(first)).end.type == "cancelled"
    assert (await planning.ended(urgent)).end.raw_answer == "urgent"
    assert (await planning.ended(patient)).end.raw_answer == "patient"
    turns = (await idle(planning.bus, session_id)).turns
    assert [(turn.run, turn.outcome) for turn in turns] == [(first, "cancelled"), (urgent, "done"), (patient, "done")]


async def test_a_queued_run_ends_when_its_turn_does_not_come(plan: Plan, provider: ModelServer) -> None:
    """With `queue_timeout`, and never begins."""
    planning, session_id = await plan(), new_id()
    provider.say(ENDLESS)
    first = await busy(planning, session_id)
    story = await planning.tell("Soon?", session_id=session_id, queue_timeout_s=0.5)
    assert (story.facts(), story.end.code) == (["queued", "error"], "queue_timeout")
    await planning.cancel(first)
    await planning.ended(first)
    assert [turn.run for turn in (await idle(planning.bus, session_id)).turns] == [first]


async def test_a_queued_run_can_be_cancelled(plan: Plan, provider: ModelServer) -> None:
    """Its status says that it waits; then the session forgets it."""
    planning, session_id = await plan(), new_id()
    provider.say(SLOW)
    first = await busy(planning, session_id)
    second = await planning.ask("Second?", session_id=session_id)
    await planning.until(second, is_queued)

    async def status() -> str | None:
        found = await status_of(planning.bus, second)
        return found.status if found is not None else None

    assert await wait_until(status, what="the run has an entry") == "queued"
    await planning.cancel(second)
    assert (await planning.ended(second)).facts() == ["queued", "cancelled"]
    await planning.ended(first)
    session = await idle(planning.bus, session_id)
    assert [turn.run for turn in session.turns] == [first]
    assert await status() == "cancelled"


async def test_a_queued_run_keeps_its_tool_context(plan: Plan, provider: ModelServer) -> None:
    """No log holds it, and its tool receives it."""
    planning, session_id = await plan(), new_id()
    provider.say(SLOW, action("look", q="x"), answer("seen"))
    await busy(planning, session_id)
    story = await planning.tell("Look?", session_id=session_id, tool_context={"token": "CANARY"})
    assert story.facts()[0] == "queued"
    assert story.of("queued")[0].has_tool_context
    assert story.of("run_started")[0].has_tool_context
    assert "CANARY" not in repr(story.events)
    context = await planning.bus.last(subjects.RUNS, subjects.context("default", story.run))
    assert context is not None
    assert b"CANARY" in context.data


async def test_a_request_continues_from_a_run_that_has_ended(plan: Plan, provider: ModelServer) -> None:
    """Its question and answer are the first turn of the session."""
    planning = await plan()
    provider.say(answer("one"), answer("two"))
    first = await planning.tell("First?")
    session_id = own_session_id(first.run)
    await planning.tell("Second?", session_id=session_id)
    session = await idle(planning.bus, session_id)
    assert [(turn.question, turn.answer) for turn in session.turns] == [("First?", "one"), ("Second?", "two")]


async def test_a_request_continues_from_a_run_that_goes_on(plan: Plan, provider: ModelServer) -> None:
    """It waits for that run, which is attached to the session."""
    planning = await plan()
    provider.say(SLOW, answer("two"))
    first = await planning.ask("First?")
    await planning.until(first, lambda event: isinstance(event, Asked))
    session_id = own_session_id(first)
    second = await planning.tell("Second?", session_id=session_id)
    one = await planning.ended(first)
    assert "attached" in one.facts()
    assert second.facts()[0] == "queued"
    session = await idle(planning.bus, session_id)
    assert [(turn.question, turn.answer) for turn in session.turns] == [("First?", "one"), ("Second?", "two")]


async def test_a_session_that_continues_from_nothing_is_empty(plan: Plan, provider: ModelServer) -> None:
    """There was no such run."""
    planning, session_id = await plan(), own_session_id(new_id())
    provider.say(answer("hello"))
    await planning.tell("Hello?", session_id=session_id)
    assert len((await idle(planning.bus, session_id)).turns) == 1


async def test_a_deleted_session_leaves_nothing(plan: Plan, provider: ModelServer) -> None:
    """Its open and queued runs are cancelled, all runs are marked for deletion, and its id starts anew."""
    planning, session_id = await plan(), new_id()
    provider.say(answer("old"), ENDLESS, answer("new"))
    done = await planning.tell("Old?", session_id=session_id)
    first = await busy(planning, session_id)
    second = await planning.ask("Second?", session_id=session_id)

    async def has_second() -> bool:
        return (await session_of(planning.bus, session_id)).queued(second) is not None

    await wait_until(has_second, what="the second run waits for its turn")
    where = SessionAddress.of("default", session_id)
    body = SessionDeletionRequested(by="ops").model_dump_json().encode()
    await planning.bus.publish(subjects.session_inbox(*where, "delete"), body)
    for run in (first, second):
        assert (await planning.ended(run)).end.type == "cancelled"

    async def is_gone() -> bool:
        session = await session_of(planning.bus, session_id)
        return not session.exists and await events_of(planning.bus, session_id) == ["deleted"]

    await wait_until(is_gone, what="the session is gone")
    assert await entry_of(planning.bus, session_id) is None
    deletions = await Bucket(planning.bus, keys.RUNS_BUCKET).keys(keys.run_deletion.all)
    assert {keys.run_deletion("default", run) for run in (done.run, first, second)} <= set(deletions)
    await planning.tell("New?", session_id=session_id)
    assert [turn.answer for turn in (await idle(planning.bus, session_id)).turns] == ["new"]


async def test_a_caller_sets_values_of_a_session(plan: Plan) -> None:
    """Before its first run too."""
    planning, session_id = await plan(), new_id()
    where = SessionAddress.of("default", session_id)
    for number, values in enumerate(({"city": "Bern", "unit": "km"}, {"unit": None})):
        body = SessionContextRequested(values=values, session_id=session_id).model_dump_json().encode()
        await planning.bus.publish(subjects.session_inbox(*where, f"context-{number}"), body)

    async def is_set() -> bool:
        return (await session_of(planning.bus, session_id)).context == {"city": "Bern"}

    await wait_until(is_set, what="the values are set")


async def test_a_run_without_a_session_tells_nobody(plan: Plan, provider: ModelServer) -> None:
    """Its log has neither a place nor a conversation."""
    provider.say(answer("alone"))
    story = await (await plan()).tell("Alone?")
    assert story.facts() == ["run_started", "asked", "step", "step", "done"]
    assert story.of("run_started")[0].conversation_seq is None
