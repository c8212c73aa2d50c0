"""A program with tools whose results are artifacts with ids of their own."""

import asyncio
from typing import assert_type

from pydantic import BaseModel

from runwire import ToolContext, ToolResponse, tool
from runwire.testing import RecordingContext


class Blog(BaseModel):
    """An artifact."""

    title: str


@tool(idempotent=True)
async def research_blog(topic: str, skill_id: str) -> ToolResponse[Blog]:
    """One line."""
    return ToolResponse(Blog(title=topic), artifact_id="abc-123", skill_id=skill_id)


@tool
def outline(topic: str, ctx: ToolContext) -> ToolResponse[list[str]]:
    """A plain function, with everything it may say."""
    assert_type(ctx.request_id, str)
    assert_type(ctx.context_id, str)
    ctx.set_content("an outline")
    return ToolResponse(
        artifact=[topic],
        mcp_execution_id=ctx.idempotency_key,
        skill_name="Outline",
        agent_name="writer",
        content="an outline of one line",
    )


async def check() -> None:
    """Both are still the functions that they were."""
    context = RecordingContext(request_id="req-789", context_id="ctx-456")
    made = await research_blog("AI trends 2025", "research_blog")
    assert_type(made, ToolResponse[Blog])
    assert_type(made.artifact.title, str)
    assert_type(made.artifact_id, str)
    assert_type(outline("AI trends 2025", context).artifact, list[str])
    assert_type(ToolResponse(Blog(title="t")), ToolResponse[Blog])
    assert_type(context.content, str)
    read = ToolResponse[Blog].model_validate_json(await research_blog.run({"topic": "t", "skill_id": "s"}, context))
    assert_type(read.artifact, Blog)
    if read.metadata is not None:
        assert_type(read.metadata.context_id, str)
        assert_type(read.metadata.user_id, str | None)


if __name__ == "__main__":
    asyncio.run(check())
