"""What precedes a request to the model: a conversation that is too long is compacted."""

import pytest

from services.planner.run.state.history import Length
from services.planner.run.state.run import Run
from tests.planner.run.turn.test_outcomes import Noting, world
from tests.planner.run_world import started


@pytest.mark.parametrize("compacted", [True, False])
def test_a_long_conversation_is_compacted(*, compacted: bool) -> None:
    """Before the model is asked, not after it has refused the request; at the limit it is not compacted yet."""

    class Long(Noting):
        def length(self, run: Run) -> Length:
            del run
            return Length(characters=400_000 + compacted, messages=10)

    played = world(Long())
    played.play(played.handling("REQUESTS:1", started=started()))
    assert ("compacted" in played.types()) is compacted
