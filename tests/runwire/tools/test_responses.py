"""A result that is an artifact with an id of its own, as the author of a tool writes it."""

import json
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from contracts.wire.base import MAX_INLINE_BYTES
from runwire import Tool, ToolContext, ToolResponse, tool
from runwire.testing import RecordingContext


class Blog(BaseModel):
    """A researched post."""

    title: str
    sources: list[str] = []
    chart: dict[str, int] = Field(default_factory=dict, json_schema_extra={"artifact": True})


@tool(idempotent=True)
async def research_blog(topic: str) -> ToolResponse[Blog]:
    """Research a topic."""
    return ToolResponse(Blog(title=topic), artifact_id="abc-123", skill_id="research_blog")


@tool
def plainly(topic: str, ctx: ToolContext) -> ToolResponse[Blog]:
    """The same in a plain function, with all that it may say."""
    return ToolResponse(
        artifact=Blog(title=topic),
        artifact_id="abc-123",
        mcp_execution_id="exec-1",
        skill_id="research_blog",
        skill_name="Research",
        agent_name="writer",
        content=f"{topic} for {ctx.request_id}",
    )


async def sent(of: Tool[..., Any], context: RecordingContext | None = None) -> Any:
    """What a server would send."""
    return json.loads(await of.run({"topic": "AI trends 2025"}, context or RecordingContext()))


async def test_one_line_is_enough() -> None:
    """The rest is filled from the context of the call."""
    context = RecordingContext(session_id="ctx-456", request_id="req-789", trace_id="trace-012", user_id="user-345")
    found = await sent(research_blog, context)
    executed_at = found["_metadata"].pop("executed_at")
    assert found == {
        "artifact_id": "abc-123",
        "mcp_execution_id": context.idempotency_key,
        "artifact": {"title": "AI trends 2025", "sources": [], "chart": {}},
        "_metadata": {
            "context_id": "ctx-456",
            "request_id": "req-789",
            "trace_id": "trace-012",
            "user_id": "user-345",
            "tool_name": "research_blog",
            "session_id": "ctx-456",
            "skill_id": "research_blog",
        },
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", executed_at)
    assert datetime.fromisoformat(executed_at).utcoffset() == timedelta(0)


async def test_a_run_without_a_session_a_user_and_a_trace() -> None:
    """Its id stands for the context and the request."""
    context = RecordingContext()
    metadata = (await sent(research_blog, context))["_metadata"]
    assert (metadata["context_id"], metadata["request_id"]) == (context.run_id, context.run_id)
    assert (metadata["trace_id"], metadata["user_id"]) == (None, None)
    assert "session_id" not in metadata


async def test_what_a_function_says_itself() -> None:
    """Is not replaced. The text for the model goes beside the result."""
    context = RecordingContext(request_id="req-789")
    found = await sent(plainly, context)
    assert found["mcp_execution_id"] == "exec-1"
    said = {key: found["_metadata"][key] for key in ("skill_id", "skill_name", "agent_name", "tool_name")}
    assert said == {
        "skill_id": "research_blog",
        "skill_name": "Research",
        "agent_name": "writer",
        "tool_name": "plainly",
    }
    assert found.keys() == {"artifact_id", "mcp_execution_id", "artifact", "_metadata"}
    assert context.content == "AI trends 2025 for req-789"


def test_the_output_schema_is_the_standard_one() -> None:
    """The annotations of the artifact's model stay. `runwire tools check` finds no fault in the rest."""
    schema = research_blog.spec.output_schema
    assert schema is not None
    assert list(schema["properties"]) == ["artifact_id", "mcp_execution_id", "artifact", "_metadata"]
    assert schema["properties"]["artifact"] == {"$ref": "#/$defs/Blog"}
    assert schema["$defs"]["Blog"]["properties"]["chart"]["artifact"] is True
    assert "description" not in schema, "of the model's class, which says nothing about this tool"


async def test_every_artifact_has_an_id_of_its_own() -> None:
    """A new one where the function gives none."""

    @tool
    async def anew(topic: str) -> ToolResponse[dict[str, str]]:
        return ToolResponse({"title": topic})

    first, second = await sent(anew), await sent(anew)
    assert re.fullmatch("[0-9a-f]{32}", first["artifact_id"])
    assert first["artifact_id"] != second["artifact_id"]
    assert first["artifact"] == {"title": "AI trends 2025"}


def test_an_id_is_a_text_within_a_limit() -> None:
    """The error says what is wrong, where it is written."""
    assert len(ToolResponse(1, artifact_id="é" * 200).artifact_id) == 200
    with pytest.raises(ValueError, match=r"^artifact_id has 201 characters, and at most 200 are kept$"):
        ToolResponse(1, artifact_id="x" * 201)
    with pytest.raises(
        ValueError, match=r"^artifact_id is empty: give a text of 1 to 200 characters, or leave it out$"
    ):
        ToolResponse(1, artifact_id="")
    with pytest.raises(ValueError, match="the content has"):
        ToolResponse(1, content="x" * (MAX_INLINE_BYTES + 1))


async def test_a_test_looks_into_the_result() -> None:
    """The function returns it as it was made; JSON of a result can be read back."""
    result = await research_blog("AI trends 2025")
    assert (result.artifact.title, result.artifact_id, result.skill_id) == (
        "AI trends 2025",
        "abc-123",
        "research_blog",
    )
    assert result.metadata is None
    body = await research_blog.run({"topic": "AI trends 2025"}, RecordingContext())
    read = ToolResponse[Blog].model_validate_json(body)
    assert read.artifact == result.artifact
    assert read.metadata is not None
    assert read.metadata.tool_name == "research_blog"
    assert ToolResponse[Blog](Blog(title="t")).artifact.title == "t"
