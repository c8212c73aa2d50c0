"""The FinalPayload of a run: every ending has one, and nothing that a model says can prevent it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.payload import FinalPayload, Source, SuggestedAction
from services.planner.run.ending.payload import assemble


def test_all_fields_of_the_model_arrive() -> None:
    """Unknown keys, too, under `extra`."""
    payload = assemble(
        {
            "raw_answer": "hi",
            "confidence": 1,
            "route": "kb",
            "requires_followup": True,
            "warnings": ["old data"],
            "language": "en",
            "sources": [{"title": "L", "url": "u"}],
            "suggested_actions": [{"action_id": "a", "label": "A", "params": {"k": 1}}],
            "extra": {"mine": 1},
            "tone": "calm",
        }
    )
    assert payload == FinalPayload(
        raw_answer="hi",
        confidence=1.0,
        route="kb",
        requires_followup=True,
        warnings=["old data"],
        language="en",
        sources=[Source(title="L", url="u")],
        suggested_actions=[SuggestedAction(action_id="a", label="A", params={"k": 1})],
        extra={"mine": 1, "tone": "calm"},
    )


INVALID: list[tuple[str, Any, Any]] = [
    ("confidence", 1.7, None),
    ("confidence", -0.1, None),
    ("confidence", "high", None),
    ("confidence", True, None),
    ("route", 5, None),
    ("language", ["en"], None),
    ("language", "english", None),
    ("language", "en-US", None),
    ("artifacts", {"x": {"y": 1}}, {}),
    ("text", "another answer", None),
    ("requires_followup", "yes", False),
    ("warnings", {"a": 1}, None),
    ("sources", "https://a", []),
    ("sources", {"title": "T"}, []),
    ("suggested_actions", "restart", []),
    ("extra", [1], {"tone": "calm"}),
]


@pytest.mark.parametrize(("field", "value", "left"), INVALID)
def test_an_invalid_field_is_dropped_with_a_warning_and_the_rest_stays(field: str, value: Any, left: Any) -> None:
    """The warning names the field and what was expected, not what was there."""
    payload = assemble({"answer": "hi", "tone": "calm", field: value})
    assert payload.raw_answer == "hi"
    assert payload.extra == {"tone": "calm"}
    assert [warning.split(" was dropped")[0] for warning in payload.warnings] == [field]
    if field not in {"warnings", "text"}:
        assert getattr(payload, field) == left


def test_an_artifact_above_a_megabyte_is_kept_with_a_warning() -> None:
    """It travels as a reference, which knows its size."""
    ref = {"artifact_id": "0" * 32, "mime_type": "application/json", "sha256": "0" * 64}
    artifacts = {"chart": {"data": ref | {"size": 3_000_000}, "small": ref | {"size": 1024 * 1024}}}
    payload = assemble({"answer": "hi"}, artifacts=artifacts)
    assert payload.artifacts == artifacts
    assert payload.warnings == ["artifact data of chart has 3,000,000 bytes"]


OTHER_NAMES = ("answer", "text", "result", "summary", "thought", "title", "action_id", "label", "params")
NAMES = st.sampled_from([*FinalPayload.model_fields, *OTHER_NAMES])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.text(st.characters(categories=["Cs"]), max_size=2),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(NAMES | st.text(max_size=3), part, max_size=5),
    max_leaves=20,
)


@given(JSON, JSON, st.none() | st.floats())
def test_no_arguments_and_no_observation_prevent_a_payload(args: Any, observation: Any, score: float | None) -> None:
    """It has an answer, it can be sent, and an observation leaves nothing in it but the answer."""
    payload = assemble(args, last_observation=observation, reflection_score=score)
    assert payload.raw_answer.strip()
    assert FinalPayload.model_validate_json(payload.model_dump_json()) == payload
    assert payload.model_copy(update={"raw_answer": ""}) == assemble(args, reflection_score=score).model_copy(
        update={"raw_answer": ""}
    )
