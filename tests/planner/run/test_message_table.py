"""The table of what a message may do: each cell is played."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.runs.decisions import Plan, PlanCall
from contracts.runs.inbox import ResumeRequested, RunResumed, TimerFired, TopUpRequested
from contracts.sessions.tasks import Reservation
from contracts.wire.faults import Fault
from runwire.plans import PlanBounds
from services.planner.run import commands
from services.planner.run.commands import Ack, Answer, Ask, Close, Dispatch, SetTimer
from services.planner.run.people import pauses
from services.planner.run.turn.decision import Decision, Failed
from services.planner.strategies.planned.execution import Planned
from services.planner.strategies.planned.strategy import Planned as Strategy
from tests.planner.handlings import Attempt
from tests.planner.run.moves import MOVES, STATES, page
from tests.planner.run_world import World, calls, finished, started

ROOT = Path(__file__).resolve().parents[3]
EVENTS = re.compile(
    r"\b(?:run_started|asked|observed|called|step|paused|topped_up|resumed|input_added|stopping|done|cancelled)\b"
    r"|\b(?:task_settled|tasks_paused|error)\b",
)
BUDGET = {"done", "paused"}
PLANNED = ", halting"
"""What a row ends with that is about the strategy `planned`."""
PLAN = Planned(plan=Plan(calls=[PlanCall(tool_name="work"), PlanCall(tool_name="work")]))
PLAN_RULES = commands.Rules(strategy=Strategy(native_reasoning=True, idle_s=1, total_s=1, bounds=PlanBounds()))
DEADLINE = TimerFired(timer="deadline", at=61_000)
OWNER = "REQUESTS:1"

Play = Callable[[World], object]


TABLE = {(message, state): cell for message, row in MOVES.items() for state, cell in zip(STATES, row, strict=True)}


def playing(*replies: Decision, **limits: object) -> Play:
    """The run has begun, and the model has replied like that; it is being asked where it has not."""
    return lambda world: world.play(world.handling(OWNER, started=started(**limits)), *replies)


def pausing(before: Play) -> Play:
    """The deadline has come meanwhile, and the run has a grace."""

    def play(world: World) -> None:
        before(world)
        world.handle(world.handling("INBOX:5", DEADLINE))
        assert world.run.paused is not None

    return play


def ended(world: World) -> None:
    """A run that somebody has ended."""
    playing(calls())(world)
    world.handle(world.handling("INBOX:6", "cancel"))


GRACE: dict[str, object] = {"grace_s": 5, "deadline_s": 60}


def freeing(world: World) -> None:
    """A call waits, and a place became free while the run was paused, which it is no longer."""
    pausing(playing(calls(2), max_parallel=1, **GRACE))(world)
    world.handle(world.handling("INBOX:6", finished("1-1")))
    world.handle(handling(world, "top_up"))


def holding(world: World, decision: Decision | None = None) -> None:
    """The only call waits for its approval."""
    guarded = started().model_copy(update={"approvals": ["work"]})
    world.play(world.handling(OWNER, started=guarded), decision or calls())
    assert world.run.is_at_rest


LIMITED = Failed(fault=Fault(code="model_rate_limited", reason="429", retryable=True), retry_after_s=10)
PLAYS: dict[str, list[Play]] = {
    "run not started": [lambda _: None],
    "model in flight": [playing(), playing(**GRACE)],
    "calls open": [
        playing(calls()),
        playing(calls(2)),
        playing(calls(2), max_parallel=1),
        playing(calls(), max_steps=1),
        playing(calls(), **GRACE),
        playing(calls(), max_steps=1, **GRACE),
    ],
    "retry due later": [playing(LIMITED), playing(LIMITED, **GRACE)],
    "waiting": [holding],
    "paused": [pausing(playing(*replies, **GRACE)) for replies in ((calls(),), (), (LIMITED,))],
}
"""The ways into each state that make a difference."""
PLAN_PLAYS = PLAYS | {
    "calls open": [playing(PLAN), playing(PLAN, **GRACE)],
    "paused": [pausing(playing(PLAN, **GRACE)), *PLAYS["paused"][1:]],
    "waiting": [lambda world: holding(world, PLAN)],
}
"""The same of the strategy `planned`."""


def handling(world: World, message: str) -> Attempt:
    """One handling of a message, by another process than the ones before."""
    match message.removesuffix(PLANNED).split():
        case ["request"]:
            return world.handling(OWNER, holder="second", started=started(), context={"token": "t"})
        case ["task_settled"]:
            if world.run.started is not None:
                world.run.set_aside["1-1"] = Reservation()
            return world.handling("INBOX:9", message)
        case ["call_finished"]:
            return world.handling("INBOX:9", finished("1-1"))
        case ["timer", name]:
            at = pauses.next_expiry(world.run) or DEADLINE.at if name == "pause" else DEADLINE.at
            at = _retry_at(world) if name == "retry" else at
            return world.handling("INBOX:9", TimerFired.model_validate({"timer": name, "at": at}))
        case ["resumed,", *_]:
            return world.handling("INBOX:9", RunResumed(at=_retry_at(world)))
        case ["decision"]:
            waiting = next(iter(world.run.pauses.values()), None)
            about = {"pause_id": waiting.pause_id, "token": waiting.token} if waiting is not None else {}
            given = {"id": "r", "pause_id": "0" * 32, "token": "", "decision": "approve", **about}
            return world.handling("INBOX:9", ResumeRequested.model_validate(given))
        case ["top_up"]:
            more = {"max_steps": 3, "deadline_s": 60}
            return world.handling("INBOX:9", TopUpRequested(id="INBOX:9", limits=more))
        case _:
            return world.handling("INBOX:9", message)


def _retry_at(world: World) -> int:
    return 12_000 if world.run.retry is None else world.run.retry.retry_at


@pytest.mark.parametrize(("message", "state"), TABLE)
def test_a_cell_says_what_happens(message: str, state: str) -> None:
    """Exactly its events, over all ways into the state; and its effects."""
    written: set[str] = set()
    moves: list[object] = []
    is_planned = message.endswith(PLANNED)
    for play in [
        *(PLAN_PLAYS if is_planned else PLAYS)[state],
        *([freeing] if message.startswith("resumed") and state == "calls open" else []),
    ]:
        world = World(PLAN_RULES) if is_planned else World()
        play(world)
        before = len(world.types())
        found = world.handle(handling(world, message))
        assert isinstance(found[-1], Ack | Ask)
        written |= set(world.types()[before:])
        moves += found
    cell = TABLE[message, state]
    allowed = set(EVENTS.findall(cell)) | (BUDGET if "budget" in cell else set())
    assert written - {"chunk"} - ({"step"} if "step" not in allowed and allowed & BUDGET else set()) == allowed, cell
    for kind, words in (
        (commands.KeepContext, "keep context"),
        (commands.ReadShown, "read"),
        (commands.Wake, "wake"),
        (Answer, "answer"),
        (Dispatch, "dispatch"),
    ):
        assert any(isinstance(move, kind) for move in moves) == (
            words in cell or (kind is Dispatch and "called" in cell) or (kind is Answer and message == "input")
        ), (kind, cell)
    assert any(isinstance(move, SetTimer) and move.name == "retry" for move in moves) == (cell == "timer"), cell
    # An end is followed by what belongs to it.
    ends = bool(allowed & {"done", "cancelled", "error"})
    assert any(isinstance(move, Close) for move in moves) == ends, cell


@pytest.mark.parametrize("message", sorted({message for message, _ in TABLE}))
def test_after_the_end_every_message_that_ends_runs_closes_the_run_again(message: str) -> None:
    """And writes nothing. A word of a task ends no run, so another message closes this one."""
    world = World()
    ended(world)
    before = len(world.written)
    moves = [type(move) for move in world.handle(handling(world, message))]
    closes = [] if message in {"task_settled", "tasks_paused"} else [Close]
    assert moves == [*([Answer] if message in {"decision", "input"} else []), *closes, Ack]
    assert len(world.written) == before


def test_the_page_is_made_from_the_table() -> None:
    """`python -m tests.planner.run.moves > docs/rules/run.md`."""
    assert (ROOT / "docs" / "rules" / "run.md").read_text(encoding="utf-8") == page()
