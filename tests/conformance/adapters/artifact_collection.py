"""The artifacts of a run's payload, from its tools' results in order."""

from typing import Any

from services.planner.run.ending.payload import assemble
from services.planner.run.state.history import add_artifacts
from services.shared.redaction.json_values import plain
from services.shared.redaction.separation import collect
from tests.support.vector_tokens import assert_matches, decoded


def check(vector: dict[str, Any]) -> None:
    """Collect from each call that succeeded, then end the run with an answer."""
    artifacts: dict[str, dict[str, Any]] = {}
    for event in vector["input"]["events"]:
        if event.get("error") is None:
            add_artifacts(artifacts, event["tool"], collect(decoded(event.get("observation")), event.get("schema")))
    payload = assemble({"answer": "done"}, artifacts=artifacts)
    assert_matches(plain(payload.artifacts), plain(decoded(vector["expected"]["artifacts"])), "artifacts")
