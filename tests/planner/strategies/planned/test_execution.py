"""Plans of the strategy `planned`, without a server: their calls, and handlings that crash, repeat and overtake."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from contracts.runs.decisions import PlainError, Plan, PlanCall, PlanError
from contracts.runs.events import Called, Observed, PlannedCall, Step
from contracts.runs.inbox import CallFinished, InputRequested, TimerFired
from contracts.tools.messages import RespondedArtifact
from contracts.wire.faults import Fault
from runwire.plans import PlanBounds
from services.planner.run.commands import Append, Ask, Dispatch, Rules, SetTimer, Wake
from services.planner.run.turn.decision import Decision, Final
from services.planner.strategies.planned.execution import (
    ANSWER_AFTER_DEADLINE_MS,
    EXECUTE,
    ActivePlan,
    Planned,
    state_of,
)
from services.planner.strategies.planned.strategy import Planned as Strategy
from services.shared.redaction.separation import dotted
from tests.planner.handlings import Attempt, advance, later_token
from tests.planner.run_world import World, finished, started
from tests.support.samples import seeds

STRATEGY = Strategy(native_reasoning=True, idle_s=1, total_s=1, bounds=PlanBounds())
RULES = Rules(strategy=STRATEGY)
REF = {
    "artifact_id": "a" * 32,
    "mime_type": "application/json",
    "size": 99_999,
    "sha256": "b" * 64,
    "json_type": "dict",
}


def opening(**limits: object) -> Any:
    return started(**limits).model_copy(update={"strategy": "planned"})


def plan(*arguments: dict[str, Any]) -> Planned:
    """A plan of calls of `work` with these arguments."""
    return Planned(plan=Plan(calls=[PlanCall(tool_name="work", arguments=each) for each in arguments]))


def answer(text: str = "done") -> Final:
    return Final(args={"answer": text}, node="respond")


def world() -> World:
    return World(RULES)


def ran(played: World) -> list[PlannedCall]:
    """The calls that were announced, in order."""
    return [
        call
        for events in played.written
        for event in events
        if isinstance(event, Called) or (isinstance(event, Step) and event.node == EXECUTE)
        for call in event.calls
    ]


def end_of(played: World) -> Step:
    return next(
        event
        for events in played.written
        for event in events
        if isinstance(event, Step) and event.node == EXECUTE and event.status != "started"
    )


def after_first(second: dict[str, Any], **outcome: Any) -> World:
    """A plan of two calls, the first of which has had this outcome."""
    played = world()
    played.play(played.handling("REQUESTS:1", started=opening()), plan({}, second))
    played.play(played.handling("INBOX:1", "call_finished", finished=finished("1-0", **outcome)))
    return played


def test_a_template_takes_the_value_of_an_earlier_result() -> None:
    """Whatever its type."""
    played = after_first({"n": "$0.output.deep.1", "all": ["$0.output.deep"]}, observation={"deep": [1, None]})
    assert ran(played)[1].args == {"n": None, "all": [[1, None]]}
    assert ran(played)[1].resolved


def test_an_inline_artifact_gives_its_value() -> None:
    """Which the observation does not show."""
    played = after_first(
        {"n": "$0.output.secret.x"},
        observation={"secret": "<artifact:dict size=7B>"},
        artifacts={"secret": {"x": "CANARY"}},
    )
    assert ran(played)[1].args == {"n": "CANARY"}


@pytest.mark.parametrize("path", [dotted(()), "secret"])
def test_a_stored_artifact_gives_its_reference(path: str) -> None:
    """With the part that is meant; also where all of the result was stored."""
    whole = path == dotted(())
    observation = {"observation": "<artifact:dict size=98KB>", "artifact": REF, "head": "", "tail": ""}
    played = after_first(
        {"n": "$0.output.secret.x.0", "all": "$0.output.secret"},
        observation=observation if whole else {"secret": "<artifact:dict size=98KB>"},
        artifacts={path: REF},
    )
    part = ["secret"] if whole else []
    args = ran(played)[1].args
    assert args["n"] == {**REF, "path": [*part, "x", "0"]}
    assert args["all"] == ({**REF, "path": part} if whole else REF)


def test_what_looks_like_a_reference_is_data() -> None:
    """Unless tool_runner has stored it: a tool may return a member of that form."""
    played = after_first({"n": "$0.output.file.mime_type"}, observation={"file": REF})
    assert ran(played)[1].args == {"n": "application/json"}


def test_the_artifact_of_a_standard_result_is_passed_as_its_reference() -> None:
    """A part of a small one is passed as its value."""
    responded = RespondedArtifact.model_validate({"artifact_id": "abc-123", "ref": REF, "fingerprint": "f"})
    played = after_first(
        {"n": "$0.output.artifact", "id": "$0.output.artifact_id", "t": "$0.output.artifact.title"},
        observation={"artifact_id": "abc-123", "artifact": "<artifact:dict size=7B>", "_metadata": {}},
        artifacts={"artifact": {"title": "AI"}},
        responded=responded,
    )
    assert ran(played)[1].args == {"n": REF, "id": "abc-123", "t": "AI"}


def test_arguments_that_become_too_large_fail_the_call() -> None:
    """They are counted before they are made."""
    played = after_first({"all": ["$0.output.text"] * 3000}, observation={"text": "x" * 30_000})
    failed = [event for event in played.written[-1] if isinstance(event, Observed)][-1]
    assert (failed.call_id, failed.failure and failed.failure.code) == ("1-1", "invalid_args")
    assert len(ran(played)) == 1


def test_the_answer_is_asked_for_in_the_record_of_the_last_outcome() -> None:
    """So no crash lies between them."""
    played = world()
    played.play(played.handling("REQUESTS:1", started=opening()), plan({}))
    played.play(played.handling("INBOX:1", "call_finished", finished=finished("1-0")), answer())
    assert [event.type for event in played.written[2]] == ["observed", "step", "asked"]
    assert state_of(played.run).stage == "respond"
    assert played.types()[-1] == "done"


def test_the_answer_of_a_plan_that_the_deadline_halted_has_a_timer() -> None:
    """Also if the outcome of a call has halted it before the timer of the run's deadline came."""
    played = world()
    played.play(played.handling("REQUESTS:1", started=opening(deadline_s=60)), plan({}, {}))
    played.play(played.handling("INBOX:1", "call_finished", finished=finished("1-0"), now=61_001))
    assert end_of(played).deadline_at == played.run.deadline_at == 61_001 + ANSWER_AFTER_DEADLINE_MS
    fired = TimerFired(timer="deadline", at=61_000)
    moves = played.play(played.handling("INBOX:2", "timer", timer=fired, now=61_002))
    assert moves[0] == SetTimer("deadline", 61_001 + ANSWER_AFTER_DEADLINE_MS)
    assert len(moves) == 2, "it is set once"
    assert played.run.asked is not None, "the model is asked by the handling of the outcome"


def test_an_invalid_plan_is_followed_by_a_request_for_the_answer() -> None:
    """Its errors are facts."""
    played = world()
    error = PlanError(tool_index=None, error=PlainError(type="empty_plan"))
    invalid = Planned(plan=Plan(calls=[]), errors=(error,))
    played.play(played.handling("REQUESTS:1", started=opening()), invalid, answer())
    assert [event.type for event in played.written[1]] == ["step", "asked"]
    assert played.written[1][0].errors == [error]


def test_the_statuses_of_calls() -> None:
    """Of each call of the plan, in its order."""
    active = ActivePlan(Step(step=3, node="plan", status="started", plan=plan({}, {}, {}).plan))
    outcomes = {
        "3-0": Observed(call_id="3-0", tool="work", status="succeeded"),
        "3-1": Observed(call_id="3-1", tool="work", status="failed"),
    }
    assert active.statuses(outcomes) == ["success", "failed", "not_executed"]


@dataclass
class Storm:
    """Handlings of one planned run, at random: they crash between any two commands and are delivered again."""

    rng: random.Random
    played: World = field(default_factory=world)
    now: int = 2000
    handlings: list[Attempt] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    asked: Counter[int] = field(default_factory=Counter)
    inputs: int = 0
    values: dict[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        limits: dict[str, Any] = {"max_steps": 12, "deadline_s": self.rng.choice([None, 1, 500])}
        opened = opening(**limits).model_copy(
            update={"deadline_at": None if limits["deadline_s"] is None else 1000 + limits["deadline_s"] * 1000}
        )
        self.handlings.append(self.played.handling("REQUESTS:1", started=opened, now=self.now))

    def deliver(self, owner: str, kind: str, **fields: Any) -> None:
        """A message arrives once."""
        if all(handling.owner != owner for handling in self.handlings):
            token = later_token()
            self.handlings.append(self.played.handling(owner, kind, token, now=self.now, **fields))

    def reply(self) -> Decision:
        if state_of(self.played.run).stage == "respond":
            return answer()
        count = self.rng.randint(1, 4)
        return plan(*({} if index == 0 else {"from": f"${index - 1}.output.id"} for index in range(count)))

    def step(self) -> None:
        """Let one handling carry out its next command, or crash."""
        self.now += self.rng.choice([0, 1, 100])
        place = self.rng.randrange(len(self.handlings))
        handling = self.handlings[place]
        handling.now = self.now
        if self.rng.random() < 0.15:
            self.handlings[place] = handling.again(later_token())
            return
        command = advance(self.played.run, handling, RULES)
        match command:
            case Append(events):
                self.played.write(handling, events)
            case Ask():
                self.asked[self.played.run.turn] += 1
                handling.decision = self.reply()
            case _:
                handling.carry_out(command)
        if isinstance(command, Dispatch):
            for call in command.calls:
                self.send(call)
        elif isinstance(command, SetTimer):
            timer = TimerFired(timer=command.name, at=command.at)
            self.deliver(f"INBOX:timer-{command.name}-{command.at}", "timer", timer=timer)
        elif isinstance(command, Wake):
            self.deliver(f"INBOX:wake-{handling.owner}", "resumed")

    def send(self, call: PlannedCall) -> None:
        """A call is sent; its outcome arrives once, and is the same whenever it is sent again."""
        self.sent[call.call_id] += 1
        value = self.values.setdefault(call.call_id, f"id-{self.rng.random()}")
        fails = value > "id-0.85"
        outcome = (
            {"status": "failed", "failure": Fault(code="tool_error", reason="no"), "observation": None}
            if fails
            else {"observation": {"id": value}}
        )
        self.deliver(f"INBOX:{call.call_id}", "call_finished", finished=finished(call.call_id, **outcome))

    def disturb(self) -> None:
        """A person adds something, or the deadline passes."""
        deadline_at = self.played.run.deadline_at
        if deadline_at is not None and self.now >= deadline_at:
            timer = TimerFired(timer="deadline", at=deadline_at)
            self.deliver(f"INBOX:deadline-{deadline_at}", "timer", timer=timer)
        if self.rng.random() < 0.01 and self.inputs < 2 and self.played.run.started is not None:
            self.inputs += 1
            added = InputRequested(id=f"i{self.inputs}", text="more", redirect=self.rng.random() < 0.5)
            self.deliver(f"INBOX:input-{self.inputs}", "input", given=added)


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", seeds(200))
def test_whatever_crashes_a_plan_is_carried_out_once(seed: int) -> None:
    """Calls begin in order, each once, with the values of the earlier ones, and none after a failure."""
    storm = Storm(random.Random(seed))
    storm.begin()
    for _ in range(3000):
        storm.step()
        storm.disturb()
        if storm.played.run.terminal is not None:
            break
    assert storm.played.run.terminal is not None, storm.played.types()
    calls = ran(storm.played)
    assert [call.call_id for call in calls] == sorted({call.call_id for call in calls}, key=_order)
    outcomes: dict[str, CallFinished | Observed] = {}
    for events in storm.played.written:
        for event in events:
            if isinstance(event, Observed):
                assert event.call_id not in outcomes, "settled once"
                outcomes[event.call_id] = event
    for call in calls:
        turn, index = _order(call.call_id)
        for earlier in range(index):
            assert outcomes[f"{turn}-{earlier}"].status == "succeeded"
        if index:
            assert call.args == {"from": storm.values[f"{turn}-{index - 1}"]}
    if not storm.inputs:
        assert len(storm.asked) <= 2


def _order(call_id: str) -> tuple[int, int]:
    turn, _, index = call_id.partition("-")
    return int(turn), int(index)
