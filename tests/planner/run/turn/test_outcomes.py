"""When a run asks its strategy what follows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from contracts.runs.events import Observed, Step
from services.planner.run.commands import Handling, Rules, StrategyRules
from services.planner.run.state.run import Event, Run
from services.planner.run.turn import asking
from services.planner.run.turn.decision import Calls
from tests.planner.run_world import World, calls, final, finished, started


@dataclass
class Noting(StrategyRules):
    """A strategy that asks the model each time, and notes the turn and its outcomes so far."""

    seen: list[tuple[int, int]] = field(default_factory=list)

    def on_step_ended(
        self, run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()
    ) -> list[Event]:
        """Ask the model."""
        del observed
        self.seen.append((run.turn, len(run.observed)))
        return asking.ask_next(run, handling, rules)


def world(strategy: Noting) -> World:
    """A run of this strategy."""
    return World(Rules(strategy=strategy))


def test_at_the_opening_and_after_each_step() -> None:
    """With nothing in flight; not while calls of a step are open."""
    strategy = Noting()
    played = world(strategy)
    played.play(played.handling("REQUESTS:1", started=started()), calls(2))
    assert strategy.seen == [(0, 0)]
    played.play(played.handling("INBOX:1", "call_finished", finished=finished("1-1")))
    assert strategy.seen == [(0, 0)]
    played.play(played.handling("INBOX:2", "call_finished", finished=finished("1-2")), final())
    assert strategy.seen == [(0, 0), (1, 1)]
    assert played.types()[-1] == "done"


@pytest.mark.parametrize("limits", [{"max_steps": 1}, {"max_tokens": 1}])
def test_an_exhausted_budget_comes_first(limits: dict[str, object]) -> None:
    """The run ends, whatever its strategy has planned."""
    strategy = Noting()
    played = world(strategy)
    first = calls()
    if "max_tokens" in limits:
        first = Calls(node=first.node, calls=first.calls, usage=first.usage.model_copy(update={"prompt_tokens": 9}))
    played.play(played.handling("REQUESTS:1", started=started(**limits)), first)
    played.play(played.handling("INBOX:1", "call_finished", finished=finished("1-1")))
    assert len(strategy.seen) == 1
    assert played.types()[-1] == "done"
    assert isinstance(played.written[-1][1], Step)
