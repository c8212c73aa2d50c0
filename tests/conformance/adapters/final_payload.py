"""ACTIONS 6: the one shape in which every run ends."""

from typing import Any

from contracts.payload import Source
from services.planner.payloads import assemble
from tests.support.vector_tokens import assert_matches, decoded


def check(vector: dict[str, Any]) -> None:
    """Assemble the payload; only the fields that the vector names are compared."""
    given = decoded(vector["input"])
    payload = assemble(
        given.get("args", {}),
        last_observation=given.get("last_observation"),
        artifacts=given.get("artifacts"),
        sources=[Source.model_validate(source) for source in given.get("sources", [])],
        reason=given.get("reason", "answer_complete"),
        reflection_score=given.get("reflection_score"),
    )
    shown = payload.model_dump()
    for field, expected in decoded(vector["expected"]).items():
        assert_matches(shown[field], expected, field)
