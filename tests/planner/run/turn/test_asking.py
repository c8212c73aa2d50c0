"""What precedes a request to the model: the length of a conversation, and the model that is asked."""

import pytest

from services.planner.run.commands import Rules
from services.planner.run.state.history import Length
from services.planner.run.state.run import Run
from services.planner.run.turn import asking
from tests.planner.run.calls.test_outcomes import Noting, world
from tests.planner.run_world import started


@pytest.mark.parametrize(
    ("model", "characters"),
    [("openai/gpt-4", 8192 * 4 // 2), ("openai/gpt-5.4-mini", 400_000), ("openai/scripted", 400_000), ("", 400_000)],
)
def test_a_conversation_has_half_of_a_small_context(model: str, characters: int) -> None:
    """Of a known one, and never more than the deployment allows; at that length it is not compacted yet."""
    rules = Rules(strategy=Noting(), max_characters=400_000)
    assert asking.max_characters(model, rules) == characters


@pytest.mark.parametrize(("model", "compacted"), [("openai/gpt-4", True), ("openai/scripted", False)])
def test_the_context_of_the_runs_model_counts(model: str, *, compacted: bool) -> None:
    """It is compacted before the model is asked, not after it has refused the request."""

    class Long(Noting):
        def length(self, run: Run) -> Length:
            del run
            return Length(characters=8192 * 4 // 2 + 1, messages=10)

    played = world(Long())
    opening = started().model_copy(update={"model": model})
    played.play(played.handling("REQUESTS:1", started=opening))
    assert ("compacted" in played.types()) is compacted
