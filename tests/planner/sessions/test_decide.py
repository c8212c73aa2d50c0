"""What a session decides: its table in the document, any order of messages with repetitions, and summaries."""

import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.payload import Usage
from contracts.runs.requests import Memory, OnBusy, RunRequested
from contracts.sessions import records
from contracts.wire.names import own_session_id
from services.planner.sessions import decide, memory, proposals
from services.planner.sessions.tasks import machine
from services.shared.sessions.fold import fold
from services.shared.sessions.state import Session
from tests.planner.sessions.tasks.session_world import World, busy, ended, request, run_id, table

ROOT = Path(__file__).resolve().parents[3]
A, B = map(run_id, "ab")
EVENTS = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b|\bdeleting\b")
COMMANDS = re.compile(r"\b[A-Z][a-z]+\b")


WORDS = {"cancel": "Cancel", "merged": "Merged", "refused": "Refuse", "attach": "Attach", "input": "Forward"}
MESSAGES: dict[str, decide.Received | RunRequested] = {
    **{f"request, {each}": request("d", on_busy=each) for each in ("queue", "steer", "reject", "cancel")},
    "run_ended": ended("a"),
    "run_ended, queued run": ended("b"),
    "run_waits": records.SessionRunWaits(waits=records.RunWaits(run=A, seq=7, waits=True)),
    "input_taken": records.SessionInputTaken(run=B, into=A, taken=True),
    "forget": records.SessionRunsForgotten(runs=[A]),
    "input_missed": records.SessionInputTaken(run=B, into=A, taken=False),
    "queue_expired": records.SessionQueueExpired(run=B),
    "context": records.SessionContextRequested(values={"city": "Bern"}, session_id="s"),
    "approved": records.SessionApproved(approved=records.ApprovedForSession(rule="r", tool="t", agent="default")),
    "delete": records.SessionDeletionRequested(),
}
OF_B = {"input_taken", "input_missed", "queue_expired"}
TABLE = table(decide.__doc__ or "", "message | none | idle | busy")


def in_state(state: str, message: str) -> World:
    """A session in which the message means something: A has the turn or has ended, B waits or is to be an input."""
    world = World()
    if state != "none":
        world.take(request("a"))
    if state == "idle":
        world.take(*[request("b", on_busy="steer")] * (message in OF_B), ended("a"))
    elif state == "busy" and message in OF_B | {"run_ended", "run_ended, queued run"}:
        world.take(request("b", on_busy="steer" if message.startswith("input") else "queue"))
    return world


def found_by(world: World) -> list[str]:
    """The commands of the newest message, by their names in the table."""
    return [
        WORDS[each.message.kind] if isinstance(each, decide.Tell) else type(each).__name__ for each in world.of_session
    ]


@pytest.mark.parametrize(("message", "state"), TABLE)
def test_a_cell_says_what_happens(message: str, state: str) -> None:
    """Exactly its events, and its commands beside those that keep the session going."""
    world, cell = in_state(state, message), TABLE[message, state]
    assert world.take(MESSAGES[message]) == EVENTS.findall(cell)
    found, named = {*found_by(world)}, {*COMMANDS.findall(cell)}
    assert named <= found
    assert found - named <= {"WriteEntry", "Begin"} | ({"Forward"} if "steer" in message else set())


@pytest.mark.parametrize(
    ("module", "head", "page"),
    [
        (decide, "message | none", "sessions"),
        (proposals, "what happens | pending", "sessions"),
        (machine, "what happens | open", "groups"),
    ],
)
def test_the_document_has_the_same_table(module: ModuleType, head: str, page: str) -> None:
    """Word for word."""
    text = (ROOT / "docs" / "rules" / f"{page}.md").read_text(encoding="utf-8")
    assert table(text, head) == table(module.__doc__ or "", head)


def test_a_message_that_is_handled_again_repeats_its_commands_only() -> None:
    """The first handling may have died before it carried them out."""
    for message, state in TABLE:
        world = in_state(state, message)
        world.take(MESSAGES[message], by="INBOX:99")
        found = world.of_session
        assert world.take(MESSAGES[message], by="INBOX:99") == [], (message, state)
        assert world.of_session == found, (message, state)


@pytest.mark.parametrize("on_busy", ["steer", "cancel"])
@pytest.mark.parametrize("on_paused", ["steer", "cancel"])
def test_a_request_changes_no_other_run_than_it_may(on_busy: OnBusy, on_paused: OnBusy) -> None:
    """It waits for its turn then."""
    for may_change, waits in ((B, True), (A, False)):
        for is_paused in (False, True):
            world = busy("a")
            world.take(records.SessionRunWaits(waits=records.RunWaits(run=A, seq=1, waits=is_paused)))
            late = request("c", on_busy=on_busy, on_paused=on_paused, may_change=may_change)
            assert (decide.offer(world.session, late)[0].on_busy == "queue") is waits  # type: ignore[union-attr]


def test_a_session_continues_from_a_run_without_one() -> None:
    """The run has the turn, if it is open; else its question and answer are the first turn."""
    first, second = request("a", session_id=None), request("b", session_id=own_session_id(A))
    for end, current in ((None, A), (ended("a").ended, B)):
        events = decide.adopt(Session(), second.session_id or "", first, end)
        world = World(fold(Session(), 1, records.SessionRecord(events=list(events))))
        world.take(second)
        assert world.session.current is not None
        assert world.session.current.run == current
        assert len(world.session.turns) == (1 if end else 0)
    for changes in ({"session_id": "other"}, {"cause": "call"}):
        assert decide.adopt(Session(), second.session_id or "", first.model_copy(update=changes), None) == []


RUNS = {run_id(name): name for name in "abcde"}
"""By id."""


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str, str, bool]]:
    """Steps of five runs in any order: what happens next, of which run, and whether the message is handled twice."""
    kinds = ("request", "end", "waits", "answer", "expire", "again", "delete")
    step = st.tuples(st.sampled_from(kinds), st.sampled_from([*RUNS]), st.booleans())
    return draw(st.lists(step, max_size=60))


@given(stories(), st.lists(st.sampled_from(["queue", "steer", "reject", "cancel"]), min_size=5, max_size=5))
def test_each_run_begins_once_or_is_merged_or_is_refused(
    steps: list[tuple[str, str, bool]], on_busy: list[OnBusy]
) -> None:
    """One run at a time has the turn, whatever is handled twice and in whichever order."""
    world = World()
    requests = {run: request(name, on_busy=each) for (run, name), each in zip(RUNS.items(), on_busy, strict=True)}
    sent: list[tuple[decide.Received | RunRequested, str]] = []
    for kind, run, is_repeated in steps:
        cause = _cause(world, kind, requests[run])
        if kind == "again" and sent:
            earlier, by = sent[len(sent) * 4 // 5]
            world.take(earlier, by=by)
        if cause is None:
            continue
        sent.append((cause, f"INBOX:{len(sent) + 1}"))
        world.take(*[cause] * (1 + is_repeated), by=sent[-1][1])
    _check(world.written)
    for _ in range(20):  # All open runs end, and all texts are answered.
        for entry in world.session.queue:
            if entry.forwarded_to is not None:
                world.take(records.SessionInputTaken(run=entry.run, into=entry.forwarded_to, taken=False))
        for run in world.session.open_runs()[:1]:
            world.take(ended(RUNS[run]))
    _check(world.written)
    assert world.session.open_runs() == []


def _cause(world: World, kind: str, asked: RunRequested) -> decide.Received | RunRequested | None:
    """The message that this step leads to; None where it is not possible."""
    run, session, number = asked.run_id, world.session, len(world.written)
    entry = session.queued(run)
    match kind:
        case "request":
            return asked
        case "end":
            return ended(RUNS[run]) if run in session.open_runs() else None
        case "waits":
            return records.SessionRunWaits(waits=records.RunWaits(run=run, seq=number, waits=number % 2 == 0))
        case "answer" if entry is not None and entry.forwarded_to is not None:
            return records.SessionInputTaken(run=run, into=entry.forwarded_to, taken=number % 2 == 0)
        case "expire":
            return records.SessionQueueExpired(run=run)
        case "delete" if number > 10:
            return records.SessionDeletionRequested()
    return None


def _check(written: Iterable[records.KnownSessionEvent]) -> None:
    """Read the log as a checker would, without the fold."""
    current, seen = None, []
    for event in written:
        if event.type == "run_begun":
            assert current is None
            current = event.run
        elif event.type == "run_ended" and event.run == current:
            current = None
        seen.append((event.type, getattr(event, "run", "")))
    for run in RUNS:
        for kind in ("run_queued", "run_begun", "run_merged", "run_ended"):
            assert seen.count((kind, run)) <= 1, (kind, run)
        outcomes = [kind for kind in ("run_begun", "run_merged", "run_refused") if (kind, run) in seen]
        assert len(outcomes) <= 1, (run, outcomes)


MEMORY = Memory(recent_turns=1, summary_model="openai/small")


def summary_of(name: str) -> records.SessionRunEnded:
    """The end of the summary's run that was requested after this one."""
    run = memory.summary_run("s", run_id(name))
    fact = records.RunEnded(run=run, outcome="done", answer="So far.", usage=Usage(model_calls=1))
    return records.SessionRunEnded(ended=fact, cause="summary", through=A, model="m")


def answered(world: World, name: str) -> list[str]:
    world.take(request(name))
    return world.take(ended(name, memory=MEMORY))


def test_a_summary_is_requested_after_an_answer() -> None:
    """Beside the turns: it has none, and a person's next run begins at once. Its request is repeated until its end."""
    world = World()
    assert (answered(world, "a"), found_by(world)) == (["run_ended"], ["WriteEntry"])
    assert (answered(world, "b"), found_by(world)) == (["run_ended", "run_queued"], ["WriteEntry", "RequestSummary"])
    assert (world.session.summary_run, world.session.runs) == (memory.summary_run("s", B), 2)
    assert (world.take(ended("b", memory=MEMORY)), found_by(world)) == ([], ["WriteEntry", "RequestSummary"])
    assert answered(world, "c") == ["run_ended"], "no second one while it is open"
    assert (world.take(summary_of("b")), found_by(world)) == (["summarised"], ["WriteEntry"])
    assert (world.session.summary, world.session.summary_run) == ("So far.", "")
    assert world.session.usage.model_calls == 4
    assert world.take(summary_of("b")) == world.take(ended("b", memory=MEMORY)) == []
    assert "RequestSummary" not in found_by(world)
