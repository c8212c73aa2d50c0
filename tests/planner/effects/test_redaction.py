"""What another than tool_runner puts into an inbox is redacted before it enters the log."""

from typing import Any

import pytest

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ToolSpec
from contracts.tools.responses import RespondedArtifact
from services.planner.effects.redaction import Redactor

MARKED = {"type": "object", "properties": {"text": {"type": "string"}, "chart": {"type": "object", "artifact": True}}}
SPEC = ToolSpec(name="draw", output_schema=MARKED)


def finished(observation: Any, **more: Any) -> CallFinished:
    """An outcome."""
    return CallFinished(call_id="1-1", tool="draw", status="succeeded", observation=observation, **more)


def test_a_marked_value_is_hidden_and_kept_for_people() -> None:
    """A small result; artifacts that were collected before stay as they are."""
    redacted = Redactor().redacted(finished({"text": "t", "chart": {"a": 1}}, artifacts={"old": 1}), "d", SPEC)
    assert (redacted.observation, redacted.artifacts) == (
        {"text": "t", "chart": "<artifact:dict size=7B>"},
        {"chart": {"a": 1}, "old": 1},
    )


def test_a_heavy_value_is_hidden_and_goes() -> None:
    """A planner cannot store it, and it is too large for the log: only the placeholder is kept."""
    redacted = Redactor().redacted(finished({"chart": {"a": "x" * 40_000}}), "d", SPEC)
    assert (redacted.observation, redacted.artifacts) == ({"chart": "<artifact:dict size=39KB>"}, {})


def test_what_is_beside_the_result_stays() -> None:
    """The tool's text, and what is known of the artifact of a result in the standard form."""
    responded = RespondedArtifact(artifact_id="abc-123", fingerprint="draw-0")
    given = finished({"chart": {"a": 1}}, content="a chart", responded=responded)
    redacted = Redactor().redacted(given, "d", SPEC)
    assert redacted.observation != given.observation
    assert (redacted.content, redacted.responded) == ("a chart", responded)


@pytest.mark.parametrize(
    "observation", [None, 1, "words", {"text": "t"}, {"chart": "<artifact:dict size=7B>"}, [{"chart": 1}]]
)
def test_what_is_redacted_is_left_alone(observation: Any) -> None:
    """The same object comes back."""
    redacted = finished(observation)
    assert Redactor().redacted(redacted, "d", SPEC) is redacted
