"""The metrics of the services: no label grows without a bound."""

from services.shared import metrics


def test_many_names_share_one_label() -> None:
    """A client may name any model, and a tool any code."""
    names = [metrics.named("code", f"code_{number}") for number in range(metrics.MAX_NAMES + 100)]
    assert names[-1] == "other"
    assert len(set(names)) <= metrics.MAX_NAMES + 1
