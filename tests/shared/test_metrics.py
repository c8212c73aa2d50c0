"""The metrics of the services: all are documented, and no label grows without a bound."""

from pathlib import Path

from prometheus_client import REGISTRY

from services.gateway import app  # noqa: F401, the modules declare what they measure
from services.runtime.health import Health
from services.shared import metrics

DOCS = (Path(__file__).parents[2] / "docs/operations.md").read_text()


def test_every_metric_is_documented() -> None:
    """By the name that Prometheus shows."""
    families = [*REGISTRY.collect(), *Health("any", list).collect()]
    names = [family.name + ("_total" if family.type == "counter" else "") for family in families]
    assert [name for name in names if name.startswith("runwire_") and f"`{name}`" not in DOCS] == []


def test_many_names_share_one_label() -> None:
    """A client may name any model, and a tool any code."""
    names = [metrics.named("code", f"code_{number}") for number in range(metrics.MAX_NAMES + 100)]
    assert names[-1] == "other"
    assert len(set(names)) <= metrics.MAX_NAMES + 1
