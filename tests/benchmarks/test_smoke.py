"""The benchmarks that need no server still run."""

from benchmarks import beside_penguiflow
from benchmarks.rules_alone import Alone


def test_our_side_beside_penguiflow() -> None:
    """Without the package: every reply is read, every answer shown, and a run of some steps played without a server."""
    outcomes = {
        name: beside_penguiflow.normalise(text, 1)["outcome"] for name, text in beside_penguiflow.REPLIES.items()
    }
    assert [name for name, outcome in outcomes.items() if outcome == "refused"] == ["cut off, 4 KB", "prose, 4 KB"]
    text = beside_penguiflow.answer(1000)
    assert [beside_penguiflow.extract(text, size, 1)["shown"] for size in (1, 7, 4000)] == [1000] * 3
    alone = Alone(20)
    assert len(alone.play()) == 20
    assert alone.run.usage.tool_calls == 20
