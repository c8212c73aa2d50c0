"""The demo model plays every scenario of the strategy `planned`, without a key and without a model server."""

from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer
from tests.support.run_services import Handler

TOPIC = {
    "type": "object",
    "properties": {"topic": {"type": "string"}, "skill_id": {"type": "string"}},
    "required": ["topic", "skill_id"],
}
POST = {
    "type": "object",
    "properties": {
        "artifact_id": {"type": "string"},
        "skill_id": {"type": "string"},
        "instructions": {"type": "string"},
    },
    "required": ["artifact_id", "skill_id", "instructions"],
}
SKILL = {"type": "string"}
RESULT = {
    "type": "object",
    "properties": {
        "artifact_id": {"type": "string"},
        "skill_id": SKILL,
        "_metadata": {"type": "object", "properties": {"skill_id": SKILL, "instructions": {"type": "string"}}},
    },
    "required": ["artifact_id"],
}
"""The values that the question gives count, and not fields of the result with the same names."""
RESEARCH = 'Research the topic "AI trends 2025" with the skill_id "research_blog"'
CREATE = 'create a blog post with the skill_id "blog_writing" and the instructions "Focus on practical applications"'


def tools(calls: list[tuple[str, Any]], *, fails: bool = False) -> dict[str, tuple[ToolSpec, Handler]]:
    """Two tools, the second of which needs what the first one returns."""

    async def research(args: dict[str, Any]) -> Any:
        calls.append(("research_blog", args))
        return Fault(code="tool_error", reason="no network") if fails else {"artifact_id": "abc-123"}

    async def create(args: dict[str, Any]) -> Any:
        calls.append(("create_blog_post", args))
        return {"text": f"A post about {args['artifact_id']}."}

    return {
        "research_blog": (
            ToolSpec(
                name="research_blog",
                description="Research a topic for a blog.",
                input_schema=TOPIC,
                output_schema=RESULT,
            ),
            research,
        ),
        "create_blog_post": (
            ToolSpec(name="create_blog_post", description="Create a blog post.", input_schema=POST),
            create,
        ),
    }


SCENARIOS: dict[str, tuple[str, int, str]] = {
    "a direct response": ("Hello there!", 1, "builtin/rehearsal"),
    "tools": (f"{RESEARCH}, then {CREATE}.", 2, "A post about abc-123."),
    "a failing tool": (f"{RESEARCH}, then {CREATE}.", 2, "create_blog_post was not executed"),
    "an invalid plan": (f"{RESEARCH}, then {CREATE} from $0.output.artifactId", 2, 'has no output field "artifactId"'),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_demo_model_plays(plan: Plan, provider: ModelServer, scenario: str) -> None:
    """With as many requests as any model."""
    question, requests, said = SCENARIOS[scenario]
    calls: list[tuple[str, Any]] = []
    planning = await plan(tools(calls, fails=scenario == "a failing tool"), model="builtin/rehearsal")
    story = await planning.tell(question, strategy="planned")
    assert said in story.end.raw_answer
    assert len(story.of("asked")) == story.end.usage.model_calls == requests
    assert story.shown() == story.end.raw_answer
    assert any("builtin/rehearsal answered" in warning for warning in story.end.warnings)
    assert provider.ledger == []
    if scenario == "tools":
        arguments = {"artifact_id": "abc-123", "skill_id": "blog_writing"}
        assert calls[0] == ("research_blog", {"topic": "AI trends 2025", "skill_id": "research_blog"})
        assert calls[1] == ("create_blog_post", {**arguments, "instructions": "Focus on practical applications"})
    elif scenario != "a failing tool":
        assert calls == []
