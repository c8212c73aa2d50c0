"""Whole runs with a tool whose result is an artifact with an id of its own: what models read of it, and what not."""

from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from tests.planner.conftest import Plan
from tests.planner.planned_tools import planned
from tests.support.model_server import ModelServer, Say
from tests.support.run_services import Handler, Told

SECRET = "swordfish"
HIDDEN: dict[str, Any] = {"type": "string", "artifact": True}
RESULT = {
    "artifact_id": "abc-123",
    "artifact": {"title": "AI trends", "note": SECRET, "sources": ["https://example.org"]},
    "_metadata": {"context_id": "ctx-456", "tool_name": "research", "user_id": SECRET, "skill_id": "research_blog"},
}
OUTPUT = {
    "type": "object",
    "properties": {
        "artifact_id": {"type": "string"},
        "artifact": {"type": "object", "properties": {"title": {"type": "string"}, "note": HIDDEN, "sources": {}}},
        "_metadata": {"type": "object", "properties": {"user_id": HIDDEN}},
    },
}
TEXT = {"type": "string"}


async def research(_: dict[str, Any]) -> Any:
    """A result with parts that only people see."""
    return Told("Researched.", RESULT)


def tools(seen: list[dict[str, Any]], **kind: Any) -> dict[str, tuple[ToolSpec, Handler]]:
    """The tool, and one that takes parts of its result. `kind`: what the argument of that name has to be."""

    async def post(args: dict[str, Any]) -> Any:
        seen.append(args)
        return {"posted": True}

    schema = {"type": "object", "properties": {"artifact_id": TEXT, "title": TEXT, "kind": {**TEXT, **kind}}}
    return {
        "research": (ToolSpec(name="research", output_schema=OUTPUT), research),
        "post": (ToolSpec(name="post", input_schema=schema), post),
    }


def of(**arguments: str) -> dict[str, Any]:
    """A call of the second tool, with paths in the result of the first."""
    return {
        "tool_name": "post",
        "arguments": {name: f"$0.output.{path}" for name, path in arguments.items()},
    }


RESEARCH = {"tool_name": "research", "arguments": {}}


def read_by_models(provider: ModelServer) -> str:
    return "".join(request.text for request in provider.ledger)


@pytest.mark.usefixtures("store")
async def test_the_answer_is_written_from_the_preview(plan: Plan, provider: ModelServer) -> None:
    """And from the tool's text. A later call gets parts of the artifact, hidden ones too."""
    seen: list[dict[str, Any]] = []
    call = of(artifact_id="artifact_id", title="artifact.title", kind="artifact.note")
    provider.say(planned(RESEARCH, call), Say(text="Done."))
    story = await (await plan(tools(seen))).tell(strategy="planned")
    assert story.end.raw_answer == "Done."
    assert seen == [{"artifact_id": "abc-123", "title": "AI trends", "kind": SECRET}]
    told = provider.ledger[-1].body["messages"][-1]["content"]
    assert "Researched." in told
    assert "AI trends" in told
    assert "abc-123" in told
    assert SECRET not in read_by_models(provider)
    observed = story.of("observed")[0]
    assert observed.responded.skill_id == "research_blog"
    assert observed.responded.ref.own_id == "abc-123"
