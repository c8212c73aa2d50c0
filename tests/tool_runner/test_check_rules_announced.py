"""The lines about a tool's announcement. No server."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from contracts.tools.messages import Finding, ToolSpec
from runwire import ToolContext, ToolResponse, tool
from services.tool_runner.check_rules import METADATA, Announced, announcement_findings


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


def facts(spec: ToolSpec | None = SPEC, **more: Any) -> Announced:
    """What is known of a tool that is as it should be, but for `more`."""
    given = {"version": "1.0.0", "instances": 2, "digests": {"d"}, "is_offered": True, "artifact_type": "text"}
    return Announced("write_post", spec, "d", **{**given, **more})


def by_name(found: list[Finding]) -> dict[str, Finding]:
    """The lines by what they are about, each of which has one."""
    lines = {line.name: line for line in found}
    assert len(lines) == len(found)
    return lines


def test_a_tool_that_returns_a_tool_response_is_as_it_should_be() -> None:
    """Every line is ok, and none says how to mend it."""
    found = announcement_findings(facts())
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
            "properties": {name: {"type": "string"} for name in METADATA},
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
def test_each_fault_has_a_line_that_says_how_to_mend_it(
    changes: dict[str, Any], more: dict[str, Any], line: str, status: str
) -> None:
    """Of the announcement, or of what the catalogue says of it."""
    found = by_name(announcement_findings(facts(SPEC.model_copy(update=changes), **more)))[line]
    assert found.status == status
    assert found.mend


@pytest.mark.parametrize("flags", [{"side_effects": "write"}, {"idempotent": True}, {"requires_approval": True}])
def test_flags_are_shown(flags: dict[str, Any]) -> None:
    """As they are announced."""
    shown = by_name(announcement_findings(facts(SPEC.model_copy(update=flags))))["flags"]
    assert str(next(iter(flags))) in shown.finding
    assert shown.status == "ok"


def test_a_schema_by_hand_is_as_good() -> None:
    """Behind a reference, too."""
    by_reference = {"$ref": "#/$defs/Standard~1form", "$defs": {"Standard/form": output()}}
    for schema in (output(), {"allOf": [output()]}, by_reference):
        found = announcement_findings(facts(SPEC.model_copy(update={"output_schema": schema})))
        assert {line.status for line in found} == {"ok"}
