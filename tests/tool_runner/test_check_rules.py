"""The lines about the answer to a call, and about a tool's announcement. No server."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, Field

from contracts.tools.messages import Finding, ToolSpec
from runwire import ToolContext, ToolResponse, tool
from services.tool_runner import check_rules

SENT = check_rules.Sent(
    "write_post", "ctx-456", "req-789", "trace-012", "user-345", at=1_700_000_000.0, skill_id="writing"
)
ABOUT = {
    "context_id": "ctx-456",
    "request_id": "req-789",
    "trace_id": "trace-012",
    "user_id": "user-345",
    "tool_name": "write_post",
    "executed_at": "2023-11-14T22:13:21.000Z",
}
VALUE = {"artifact_id": "abc-123", "artifact": {"title": "AI"}, "_metadata": ABOUT}
GOOD = check_rules.Answered(
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


def with_value(**changes: Any) -> check_rules.Answered:
    return replace(GOOD, value=VALUE | changes)


def with_metadata(**changes: Any) -> check_rules.Answered:
    """The good answer with other members of `_metadata`; None leaves one out."""
    kept = {name: each for name, each in (ABOUT | changes).items() if each is not None}
    return with_value(_metadata=kept)


def line_of(answered: check_rules.Answered, name: str) -> Finding:
    (found,) = [line for line in check_rules.answer_findings(SENT, answered) if line.name == name]
    return found


@pytest.mark.parametrize(
    ("answered", "line", "status"),
    [
        (with_value(artifact_id=7), "artifact_id", "failed"),
        (with_value(artifact_id=" "), "artifact_id", "failed"),
        (with_value(artifact_id="x" * 201), "artifact_id", "failed"),
        (with_value(artifact=[1]), "artifact", "warning"),
        (with_value(_metadata="none"), "_metadata", "failed"),
        *((with_metadata(**{name: None}), f"_metadata.{name}", "failed") for name in ABOUT),
        *((with_metadata(**{name: "other"}), f"_metadata.{name}", "failed") for name in ABOUT if name[-1] != "t"),
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
def test_each_fault_of_an_answer_has_a_line_with_its_remedy(
    answered: check_rules.Answered, line: str, status: str
) -> None:
    """And every other line is as before, or is not there."""
    found = line_of(answered, line)
    assert found.status == status
    assert found.mend
    others = [one for one in check_rules.answer_findings(SENT, answered) if one.name != line]
    assert {one.status for one in others} <= {"ok"}


def test_a_tool_with_skills_takes_them_as_an_argument() -> None:
    """Or nobody can choose one; this is a hint."""
    sent = replace(SENT, skill_id=None, takes_skill=False)
    (found,) = [line for line in check_rules.answer_findings(sent, GOOD) if line.name == "skill_id"]
    assert found.status == "warning"


@pytest.mark.parametrize(
    ("again", "is_idempotent", "status"),
    [
        (GOOD, True, "ok"),
        (with_metadata(executed_at="2023-11-14T22:13:29.000Z"), True, "warning"),
        (with_value(artifact={"title": "other"}), True, "failed"),
        (replace(GOOD, content="another"), True, "failed"),
        (replace(GOOD, complaint="title is missing"), True, "failed"),
        (check_rules.Answered(at=0, failure="tool_error: no"), True, "failed"),
        (check_rules.Answered(at=0, failure="outcome_unknown: lost"), False, "warning"),
        (replace(GOOD, value=[1]), True, "failed"),
    ],
)
def test_the_same_call_gives_the_same_answer(again: check_rules.Answered, *, is_idempotent: bool, status: str) -> None:
    """A tool that is not idempotent is never called twice, so it may have forgotten it."""
    found = check_rules.repetition_finding(GOOD, again, is_idempotent=is_idempotent)
    assert (found.name, found.status) == ("repetition", status)
    assert bool(found.mend) == (status != "ok")


class Blog(BaseModel):
    """A post."""

    title: str


@tool(idempotent=True, desc="Writes a post.")
async def write_post(
    ctx: ToolContext, topic: str = Field(description="about what"), skill_id: str = Field(description="how")
) -> ToolResponse[Blog]:
    """Write it."""
    ctx.logger.info(topic)
    return ToolResponse(Blog(title=topic), artifact_id="abc-123", skill_id=skill_id)


SPEC = write_post.spec


def facts(spec: ToolSpec | None = SPEC, **more: Any) -> check_rules.Announced:
    """What is known of a tool that is as it should be, but for `more`."""
    given = {"version": "1.0.0", "instances": 2, "digests": {"d"}, "is_offered": True, "artifact_type": "text"}
    return check_rules.Announced("write_post", spec, "d", **{**given, **more})


def by_name(found: list[Finding]) -> dict[str, Finding]:
    """The lines by what they are about, each of which has one."""
    lines = {line.name: line for line in found}
    assert len(lines) == len(found)
    return lines


def test_a_tool_that_returns_a_tool_response_is_as_it_should_be() -> None:
    """Every line is ok, and none says how to mend it."""
    found = check_rules.announcement_findings(facts())
    assert [(line.name, line.status, line.mend) for line in found] == [
        (name, "ok", "")
        for name in (
            *("announced", "accepted", "description", "input_schema", "argument skill_id", "output_schema"),
            *("output artifact_id", "output artifact", "output _metadata", "output _metadata.*", "templates"),
            *("output type", "flags", "timeout"),
        )
    ]
    assert "$0.output.artifact_id" in by_name(found)["templates"].finding


def output(**changes: Any) -> dict[str, Any]:
    """The output schema of canonical results by hand; `changes` of members, None to leave one out."""
    members: dict[str, Any] = {
        "artifact_id": {"type": "string"},
        "artifact": {"type": "object"},
        "_metadata": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in check_rules.METADATA},
        },
    }
    kept = {name: each for name, each in (members | changes).items() if each is not None}
    return {"type": "object", "properties": kept, "required": list(members)}


@pytest.mark.parametrize(
    ("changes", "more", "line", "status"),
    [
        ({}, {"digests": {"d", "e"}}, "announced", "warning"),
        ({}, {"is_offered": False, "refused": "not accepted"}, "accepted", "failed"),
        ({"description": "  "}, {}, "description", "failed"),
        ({"input_schema": {"properties": {"topic": {"type": "string"}}}}, {}, "input_schema", "warning"),
        ({"input_schema": {"properties": {"topic": True}}}, {}, "input_schema", "warning"),
        (
            {"input_schema": {"properties": {"skill_id": {"type": "integer", "description": "x"}}}},
            {},
            "argument skill_id",
            "warning",
        ),
        ({"output_schema": None}, {}, "output_schema", "failed"),
        ({"output_schema": {**output(), "required": ["artifact_id"]}}, {}, "output_schema", "failed"),
        ({"output_schema": output(artifact_id=None)}, {}, "output artifact_id", "failed"),
        ({"output_schema": output(artifact_id={"type": "integer"})}, {}, "output artifact_id", "failed"),
        ({"output_schema": output(artifact_id={})}, {}, "output artifact_id", "warning"),
        ({"output_schema": output(artifact={"type": "array"})}, {}, "output artifact", "warning"),
        ({"output_schema": output(_metadata={"type": "string"})}, {}, "output _metadata", "failed"),
        (
            {"output_schema": output(_metadata={"type": "object", "properties": {"context_id": {}}})},
            {},
            "output _metadata.*",
            "warning",
        ),
        ({"output_schema": {"type": "string"}}, {}, "templates", "failed"),
        ({}, {"artifact_type": None}, "output type", "warning"),
        ({"idempotent": False}, {}, "flags", "warning"),
        ({"heartbeat_s": None, "timeout_s": 600}, {}, "timeout", "warning"),
    ],
)
def test_each_fault_of_an_announcement_has_a_line_with_its_remedy(
    changes: dict[str, Any], more: dict[str, Any], line: str, status: str
) -> None:
    """Of the announcement, or of what the catalogue says of it."""
    found = by_name(check_rules.announcement_findings(facts(SPEC.model_copy(update=changes), **more)))[line]
    assert found.status == status
    assert found.mend


@pytest.mark.parametrize("flags", [{"side_effects": "write"}, {"idempotent": True}, {"requires_approval": True}])
def test_flags_are_shown(flags: dict[str, Any]) -> None:
    """As they are announced."""
    shown = by_name(check_rules.announcement_findings(facts(SPEC.model_copy(update=flags))))["flags"]
    assert str(next(iter(flags))) in shown.finding
    assert shown.status == "ok"


def test_a_schema_by_hand_is_as_good() -> None:
    """Behind a reference, too."""
    by_reference = {"$ref": "#/$defs/Standard~1form", "$defs": {"Standard/form": output()}}
    for schema in (output(), {"allOf": [output()]}, by_reference):
        found = check_rules.announcement_findings(facts(SPEC.model_copy(update={"output_schema": schema})))
        assert {line.status for line in found} == {"ok"}
