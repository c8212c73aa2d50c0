"""What a session decides: its table in the document, and any order of messages with repetitions."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.requests import OnBusy, RunRequested
from contracts.sessions.records import (
    ApprovedForSession,
    KnownSessionEvent,
    RunEnded,
    RunWaits,
    SessionApproved,
    SessionContextRequested,
    SessionDeletionRequested,
    SessionInputTaken,
    SessionQueueExpired,
    SessionRecord,
    SessionRunEnded,
    SessionRunsForgotten,
    SessionRunWaits,
)
from contracts.wire.names import own_session_id
from services.planner.sessions import decide
from services.planner.sessions.decide import Tell
from services.shared.sessions.fold import fold
from services.shared.sessions.state import Session

ROOT = Path(__file__).resolve().parents[3]
A, B, C, D = (letter * 32 for letter in "abcd")
EVENTS = re.compile(r"\b[a-z]+(?:_[a-z]+)+\b|\bdeleting\b")
COMMANDS = re.compile(r"\b[A-Z][a-z]+\b")


def request(run: str, on_busy: OnBusy = "queue", **fields: object) -> RunRequested:
    return RunRequested.model_validate(
        {
            "run_id": run,
            "tenant": "default",
            "requested_at": 5,
            "trace_id": "t",
            "query": f"from {run[0]}",
            "session_id": "s",
            "on_busy": on_busy,
            **fields,
        }
    )


@pytest.mark.parametrize("on_busy", ["steer", "cancel"])
@pytest.mark.parametrize("on_paused", ["steer", "cancel"])
def test_a_request_changes_no_other_run_than_it_may(on_busy: OnBusy, on_paused: OnBusy) -> None:
    """It waits for its turn then."""
    for may_change, waits in (("b" * 32, True), (RUNS[0], False)):
        for is_paused in (False, True):
            world = World()
            world.take(request(RUNS[0]))
            current = world.session.current
            assert current is not None
            world.session = world.session.model_copy(
                update={"current": current.model_copy(update={"waits": is_paused})}
            )
            late = request("c" * 32, on_busy, on_paused=on_paused, may_change=may_change)
            assert (decide.offer(world.session, late)[0].on_busy == "queue") is waits  # type: ignore[union-attr]


def ended(run: str) -> SessionRunEnded:
    return SessionRunEnded(ended=RunEnded(run=run, outcome="done", question="q", answer="a"))


NAMES = {"cancel": "Cancel", "merged": "Merged", "refused": "Refuse", "attach": "Attach", "input": "Forward"}


def name_of(command: decide.Command) -> str:
    """The name of a command in the table."""
    return NAMES[command.message.kind] if isinstance(command, Tell) else type(command).__name__


@dataclass
class World:
    """A session, and the handling of messages to it."""

    session: Session = field(default_factory=Session)
    written: list[KnownSessionEvent] = field(default_factory=list)
    handled: int = 0

    def take(self, cause: RunRequested | decide.Received, by: str = "") -> tuple[list[str], list[str]]:
        """Handle a request or message; returns the types of its events, and the names of its commands."""
        self.handled += 1
        by = by or f"INBOX:{self.handled}"
        events = (
            decide.offer(self.session, cause)
            if isinstance(cause, RunRequested)
            else decide.receive(self.session, cause, by)
        )
        if events:
            record = SessionRecord(by=by, at=self.handled, events=list(events))
            self.session = fold(self.session, self.session.seq + 1, record)
            self.written += events
        found = decide.commands(self.session, cause)
        return [event.type for event in events], list(map(name_of, found))


def idle(world: World) -> None:
    """A run has ended, and took no text of B, which waits for the answer."""
    busy(world)
    world.take(request(B, "steer"))
    world.take(ended(A))


def busy(world: World) -> None:
    """A has the turn."""
    world.take(request(A))


def steered(world: World) -> None:
    """A has the turn, and was sent the text of B."""
    busy(world)
    world.take(request(B, "steer"))


def queued(world: World) -> None:
    """A has the turn, and B waits for it."""
    busy(world)
    world.take(request(B))


MESSAGES: dict[str, decide.Received | RunRequested] = {
    **{f"request, {each}": request(D, each) for each in ("queue", "steer", "reject", "cancel")},
    "run_ended": ended(A),
    "run_ended, queued run": ended(B),
    "run_waits": SessionRunWaits(waits=RunWaits(run=A, seq=7, waits=True)),
    "input_taken": SessionInputTaken(run=B, into=A, taken=True),
    "forget": SessionRunsForgotten(runs=[A]),
    "input_missed": SessionInputTaken(run=B, into=A, taken=False),
    "queue_expired": SessionQueueExpired(run=B),
    "context": SessionContextRequested(values={"city": "Bern"}, session_id="s"),
    "approved": SessionApproved(approved=ApprovedForSession(rule="r", tool="t", agent="default")),
    "delete": SessionDeletionRequested(),
}


def way_into(message: str, state: str) -> Callable[[World], None]:
    """How a session comes into a state in which the message means something."""
    if state == "none":
        return lambda _: None
    if state == "idle":
        return idle if message in {"input_taken", "input_missed", "queue_expired"} else _only_a
    if message in {"input_taken", "input_missed"}:
        return steered
    return queued if message in {"run_ended", "run_ended, queued run", "queue_expired"} else busy


def _only_a(world: World) -> None:
    busy(world)
    world.take(ended(A))


def cells(text: str) -> dict[tuple[str, str], str]:
    """The cells of the table, by message and state, without backquotes."""
    lines = text[text.index("| message | none | idle") :].replace("`", "").partition("\n\n")[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0], state): cell for row in table[2:] for state, cell in zip(table[0][1:], row[1:], strict=True)}


TABLE = cells(decide.__doc__ or "")


@pytest.mark.parametrize(("message", "state"), TABLE)
def test_a_cell_says_what_happens(message: str, state: str) -> None:
    """Exactly its events, and its commands beside those that keep the session going."""
    world = World()
    way_into(message, state)(world)
    events, found = world.take(MESSAGES[message])
    cell = TABLE[message, state]
    assert events == EVENTS.findall(cell)
    assert set(COMMANDS.findall(cell)) <= set(found)
    assert set(found) - set(COMMANDS.findall(cell)) <= {"WriteEntry", "Begin"} | (
        {"Forward"} if "steer" in message else set()
    )


def test_the_document_has_the_same_table() -> None:
    """Word for word."""
    assert cells((ROOT / "docs" / "rules" / "sessions.md").read_text(encoding="utf-8")) == TABLE


def test_a_message_that_is_handled_again_repeats_its_commands_only() -> None:
    """The first handling may have died before it carried them out."""
    for message, state in TABLE:
        world = World()
        way_into(message, state)(world)
        _, found = world.take(MESSAGES[message], "INBOX:99")
        again, repeated = world.take(MESSAGES[message], "INBOX:99")
        assert again == [], (message, state)
        assert repeated == found, (message, state)


def test_a_session_continues_from_a_run_without_one() -> None:
    """The run has the turn, if it is open; else its question and answer are the first turn."""
    first, second = request(A, session_id=None), request(B, session_id=own_session_id(A))
    for end, place in ((None, None), (RunEnded(run=A, outcome="done", question="q", answer="a"), B)):
        world = World()
        events = decide.adopt(world.session, second.session_id or "", first, end)
        world.session = fold(world.session, 1, SessionRecord(events=list(events)))
        world.take(second)
        assert world.session.current is not None
        assert world.session.current.run == (place or A)
        assert len(world.session.turns) == (1 if end else 0)
    for changes in ({"session_id": "other"}, {"cause": "call"}):
        assert decide.adopt(Session(), second.session_id or "", first.model_copy(update=changes), None) == []


RUNS = [f"{number:032x}" for number in range(1, 6)]


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[str, str, bool]]:
    """Steps of five runs in any order: what happens next, of which run, and whether the message is handled twice."""
    kinds = ("request", "end", "waits", "answer", "expire", "again", "delete")
    step = st.tuples(st.sampled_from(kinds), st.sampled_from(RUNS), st.booleans())
    return draw(st.lists(step, max_size=60))


@given(stories(), st.lists(st.sampled_from(["queue", "steer", "reject", "cancel"]), min_size=5, max_size=5))
def test_each_run_begins_once_or_is_merged_or_is_refused(
    steps: list[tuple[str, str, bool]], on_busy: list[OnBusy]
) -> None:
    """One run at a time has the turn, whatever is handled twice and in whichever order."""
    world = World()
    requests = {run: request(run, each) for run, each in zip(RUNS, on_busy, strict=True)}
    sent: list[tuple[decide.Received | RunRequested, str]] = []
    for kind, run, is_repeated in steps:
        cause = _cause(world, kind, requests[run])
        if kind == "again" and sent:
            world.take(*sent[len(run) * len(sent) // 40 % len(sent)])
        if cause is None:
            continue
        sent.append((cause, f"INBOX:{len(sent) + 1}"))
        for _ in range(1 + is_repeated):
            world.take(*sent[-1])
    _check(world.written, RUNS)
    _finish(world)
    _check(world.written, RUNS)
    assert world.session.open_runs() == []


def _cause(world: World, kind: str, asked: RunRequested) -> decide.Received | RunRequested | None:
    """The message that this step leads to; None where it is not possible."""
    run, session = asked.run_id, world.session
    entry = session.queued(run)
    match kind:
        case "request":
            return asked
        case "end":
            return ended(run) if run in session.open_runs() else None
        case "waits":
            return SessionRunWaits(waits=RunWaits(run=run, seq=world.handled, waits=world.handled % 2 == 0))
        case "answer" if entry is not None and entry.forwarded_to is not None:
            return SessionInputTaken(run=run, into=entry.forwarded_to, taken=world.handled % 2 == 0)
        case "expire":
            return SessionQueueExpired(run=run)
        case "delete" if world.handled > 30:
            return SessionDeletionRequested()
    return None


def _finish(world: World) -> None:
    """All open runs end, and all texts are answered."""
    for _ in range(20):
        for entry in world.session.queue:
            if entry.forwarded_to is not None:
                world.take(SessionInputTaken(run=entry.run, into=entry.forwarded_to, taken=False))
        for run in world.session.open_runs()[:1]:
            world.take(ended(run))


def _check(written: Iterable[KnownSessionEvent], runs: Iterable[str]) -> None:
    """Read the log as a checker would, without the fold."""
    current, seen = None, []
    for event in written:
        if event.type == "run_begun":
            assert current is None
            current = event.run
        elif event.type == "run_ended" and event.run == current:
            current = None
        seen.append((event.type, getattr(event, "run", "")))
    for run in runs:
        for kind in ("run_queued", "run_begun", "run_merged", "run_ended"):
            assert seen.count((kind, run)) <= 1, (kind, run)
        outcomes = [kind for kind in ("run_begun", "run_merged", "run_refused") if (kind, run) in seen]
        assert len(outcomes) <= 1, (run, outcomes)
