"""The lines about the answer to a call. No server."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.tools.messages import Finding
from services.tool_runner.check_rules import Answered, Sent, answer_findings, repetition_finding

SENT = Sent("write_post", "ctx-456", "req-789", "trace-012", "user-345", at=1_700_000_000.0, skill_id="writing")
METADATA = {
    "context_id": "ctx-456",
    "request_id": "req-789",
    "trace_id": "trace-012",
    "user_id": "user-345",
    "tool_name": "write_post",
    "executed_at": "2023-11-14T22:13:21.000Z",
}
VALUE = {"artifact_id": "abc-123", "artifact": {"title": "AI"}, "_metadata": METADATA}
GOOD = Answered(
    at=1_700_000_002.0,
    latency_ms=1200,
    value=VALUE,
    size=300,
    content="a post",
    is_standard=True,
    skill_id="writing",
    artifact_type="text",
    executed_at=1_700_000_001.0,
)
NAMES = [
    *("call", "result", "standard form", "artifact_id", "artifact"),
    *(f"_metadata.{name}" for name in METADATA),
    *("skill_id", "artifact_type", "content", "size"),
]


def with_value(**changes: Any) -> Answered:
    return replace(GOOD, value=VALUE | changes)


def with_metadata(**changes: Any) -> Answered:
    """The good answer with other members of `_metadata`; None leaves one out."""
    kept = {name: each for name, each in (METADATA | changes).items() if each is not None}
    return with_value(_metadata=kept)


def line_of(answered: Answered, name: str) -> Finding:
    (found,) = [line for line in answer_findings(SENT, answered) if line.name == name]
    return found


@pytest.mark.parametrize(
    ("answered", "line", "status"),
    [
        (with_value(artifact_id=7), "artifact_id", "failed"),
        (with_value(artifact_id=" "), "artifact_id", "failed"),
        (with_value(artifact_id="x" * 201), "artifact_id", "failed"),
        (with_value(artifact=[1]), "artifact", "warning"),
        (with_value(_metadata="none"), "_metadata", "failed"),
        *((with_metadata(**{name: None}), f"_metadata.{name}", "failed") for name in METADATA),
        *((with_metadata(**{name: "other"}), f"_metadata.{name}", "failed") for name in METADATA if name[-1] != "t"),
        (replace(with_metadata(executed_at="yesterday"), executed_at=None), "_metadata.executed_at", "failed"),
        (replace(GOOD, executed_at=SENT.at - 61), "_metadata.executed_at", "failed"),
        (replace(GOOD, executed_at=GOOD.at + 61), "_metadata.executed_at", "failed"),
        (with_metadata(executed_at=None, timestamp="2023-11-14T22:13:21Z"), "_metadata.executed_at", "warning"),
        (replace(GOOD, skill_id=None), "skill_id", "failed"),
        (replace(GOOD, skill_id="editing"), "skill_id", "warning"),
        (replace(GOOD, artifact_type=None), "artifact_type", "warning"),
        (replace(GOOD, content=None), "content", "warning"),
        (replace(GOOD, size=2_000_000), "size", "warning"),
        (replace(GOOD, is_standard=False, value={"artifact": {}}), "standard form", "failed"),
        (replace(GOOD, is_standard=False, value=[1]), "standard form", "failed"),
        (replace(GOOD, complaint="title is missing"), "result", "failed"),
        (replace(GOOD, failure="tool_error: no"), "call", "failed"),
    ],
)
def test_each_fault_has_a_line_that_says_how_to_mend_it(answered: Answered, line: str, status: str) -> None:
    """And every other line is as before, or is not there."""
    found = line_of(answered, line)
    assert found.status == status
    assert found.mend
    others = [one for one in answer_findings(SENT, answered) if one.name != line]
    assert {one.status for one in others} <= {"ok"}


def test_a_tool_with_skills_takes_them_as_an_argument() -> None:
    """Or nobody can choose one; this is a hint."""
    sent = replace(SENT, skill_id=None, takes_skill=False)
    (found,) = [line for line in answer_findings(sent, GOOD) if line.name == "skill_id"]
    assert found.status == "warning"


@pytest.mark.parametrize(
    ("again", "is_idempotent", "status"),
    [
        (GOOD, True, "ok"),
        (with_metadata(executed_at="2023-11-14T22:13:29.000Z"), True, "warning"),
        (with_value(artifact={"title": "other"}), True, "failed"),
        (replace(GOOD, content="another"), True, "failed"),
        (replace(GOOD, complaint="title is missing"), True, "failed"),
        (Answered(at=0, failure="tool_error: no"), True, "failed"),
        (Answered(at=0, failure="outcome_unknown: lost"), False, "warning"),
        (replace(GOOD, value=[1]), True, "failed"),
    ],
)
def test_the_same_call_gives_the_same_answer(again: Answered, *, is_idempotent: bool, status: str) -> None:
    """A tool that is not idempotent is never called twice, so it may have forgotten it."""
    found = repetition_finding(GOOD, again, is_idempotent=is_idempotent)
    assert (found.name, found.status) == ("repetition", status)
    assert bool(found.mend) == (status != "ok")
