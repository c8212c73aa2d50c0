"""Plans of the strategy `planned`, without a server: their calls, and handlings that crash, repeat and overtake."""

from typing import Any

import pytest

from contracts.runs.decisions import PlainError, Plan, PlanCall, PlanError
from contracts.runs.events import Called, Observed, PlannedCall, Step
from contracts.runs.inbox import InputRequested, TimerFired
from contracts.tools.messages import RespondedArtifact
from contracts.wire.faults import Fault
from runwire.plans import PlanBounds
from services.planner.run.commands import Rules, SetTimer
from services.planner.run.turn.decision import Decision, Final
from services.planner.strategies.planned.execution import ANSWER_AFTER_DEADLINE_MS, EXECUTE, Planned, state_of
from services.planner.strategies.planned.strategy import Planned as Strategy
from services.shared.redaction.separation import dotted
from tests.planner.run_world import Storm, World, finished, started
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
    announced = [event for event in played.of(Called | Step) if isinstance(event, Called) or event.node == EXECUTE]
    return [call for event in announced for call in event.calls]


def after_first(second: dict[str, Any], **outcome: Any) -> World:
    """A plan of two calls, the first of which has had this outcome."""
    played = world()
    played.play(played.handling("REQUESTS:1", started=opening()), plan({}, second))
    played.play(played.handling("INBOX:1", finished("1-0", **outcome)))
    return played


def test_a_template_takes_the_value_of_an_earlier_result() -> None:
    """Whatever its type."""
    played = after_first({"n": "$0.output.deep.1", "all": ["$0.output.deep"]}, observation={"deep": [1, None]})
    assert ran(played)[1].args == {"n": None, "all": [[1, None]]}
    assert ran(played)[1].resolved


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
    failed = played.of(Observed)[-1]
    assert (failed.call_id, failed.failure and failed.failure.code) == ("1-1", "invalid_args")
    assert len(ran(played)) == 1


def test_the_answer_is_asked_for_in_the_record_of_the_last_outcome() -> None:
    """So no crash lies between them."""
    played = world()
    played.play(played.handling("REQUESTS:1", started=opening()), plan({}))
    played.play(played.handling("INBOX:1", finished("1-0")), answer())
    assert [event.type for event in played.written[2]] == ["observed", "step", "asked"]
    assert state_of(played.run).stage == "respond"
    assert played.types()[-1] == "done"


def test_the_answer_of_a_plan_that_the_deadline_halted_has_a_timer() -> None:
    """Also if the outcome of a call has halted it before the timer of the run's deadline came."""
    played = world()
    played.play(played.handling("REQUESTS:1", started=opening(deadline_s=60)), plan({}, {}))
    played.play(played.handling("INBOX:1", finished("1-0"), now=61_001))
    assert played.of(Step)[-1].deadline_at == played.run.deadline_at == 61_001 + ANSWER_AFTER_DEADLINE_MS
    fired = TimerFired(timer="deadline", at=61_000)
    moves = played.play(played.handling("INBOX:2", fired, now=61_002))
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


class PlanStorm(Storm):
    """Handlings of one planned run, at random, whose clock goes on. A call that is sent again ends as before."""

    crashes = 0.15

    def __init__(self, seed: int) -> None:
        super().__init__(seed, opening(), RULES)
        deadline_s = self.rng.choice([None, 1, 500])
        deadline_at = None if deadline_s is None else 1000 + deadline_s * 1000
        opened = opening(max_steps=12, deadline_s=deadline_s).model_copy(update={"deadline_at": deadline_at})
        self.handlings = [self.world.handling("REQUESTS:1", started=opened)]
        self.inputs = 0
        self.values: dict[str, str] = {}

    def reply(self, turn: int) -> Decision:
        del turn
        if state_of(self.world.run).stage == "respond":
            return answer()
        count = self.rng.randint(1, 4)
        return plan(*({} if index == 0 else {"from": f"${index - 1}.output.id"} for index in range(count)))

    def send(self, call: PlannedCall, *, again: bool) -> None:
        del again
        value = self.values.setdefault(call.call_id, f"id-{self.rng.random()}")
        outcome: dict[str, Any] = {"observation": {"id": value}}
        if value > "id-0.85":
            outcome = {"status": "failed", "failure": Fault(code="tool_error", reason="no"), "observation": None}
        self.deliver(f"INBOX:{call.call_id}", finished(call.call_id, **outcome))

    def step(self) -> None:
        self.now += self.rng.choice([0, 1, 100])
        for handling in self.handlings:
            handling.now = self.now
        super().step()

    def outside(self) -> None:
        """A person adds something, or the deadline passes."""
        run = self.world.run
        if run.deadline_at is not None and self.now >= run.deadline_at:
            self.set_timer(TimerFired(timer="deadline", at=run.deadline_at))
        if self.rng.random() < 0.01 and self.inputs < 2 and run.started is not None:
            self.inputs += 1
            added = InputRequested(id=f"i{self.inputs}", text="more", redirect=self.rng.random() < 0.5)
            self.deliver(f"INBOX:input-{self.inputs}", added)


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", seeds(200))
def test_whatever_crashes_a_plan_is_carried_out_once(seed: int) -> None:
    """Calls begin in order, each once, with the values of the earlier ones, and none after a failure."""
    storm = PlanStorm(seed)
    storm.play()
    calls, settled = ran(storm.world), storm.world.of(Observed)
    assert [call.call_id for call in calls] == sorted({call.call_id for call in calls}, key=_order)
    outcomes = {event.call_id: event for event in settled}
    assert len(outcomes) == len(settled), "settled once"
    for call in calls:
        turn, index = _order(call.call_id)
        for earlier in range(index):
            assert outcomes[f"{turn}-{earlier}"].status == "succeeded"
        if index:
            assert call.args == {"from": storm.values[f"{turn}-{index - 1}"]}
    if not storm.inputs:
        assert len({turn for turn, _ in storm.asked}) <= 2


def _order(call_id: str) -> tuple[int, int]:
    turn, _, index = call_id.partition("-")
    return int(turn), int(index)
