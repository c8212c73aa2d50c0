"""An observation that is too large shows both ends, and the model reads on in it; what is for people it never reads."""

import asyncio
import itertools
import json
from typing import Any

import pytest

from contracts.runs.events import ArtifactStored, RunEvent
from contracts.tools.messages import ToolSpec
from services.shared.tools.builtin import READ_ARTIFACT
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, Seen, action, answer

LONG = "BEGIN " + "".join(f"{number} é\n" for number in range(20_000)) + "END"
MARKED = {"type": "object", "properties": {"text": {"type": "string"}, "chart": {"type": "object", "artifact": True}}}


async def essay(_: dict[str, Any]) -> Any:
    """Say a lot."""
    return LONG


async def report(_: dict[str, Any]) -> Any:
    """Say a lot, and draw."""
    return {"text": LONG, "chart": {"secret": "CANARY" * 10_000}}


TOOLS = {
    "essay": (ToolSpec(name="essay", idempotent=True), essay),
    "report": (ToolSpec(name="report", output_schema=MARKED, idempotent=True), report),
}


def results(request: Seen) -> list[dict[str, Any]]:
    """The results of the last step as the model was shown them."""
    messages = request.body["messages"]
    since = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
    lines = "\n".join(str(message["content"]) for message in messages[since + 1 :]).splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"call"')]


def call(transport: str, node: str, /, **args: Any) -> Say:
    """A call of a tool, in the form that the transport has."""
    if transport == "json":
        return action(node, **args)
    return Say(tool_calls=[{"name": node, "arguments": json.dumps(args)}], finish_reason="tool_calls")


pytestmark = pytest.mark.usefixtures("store")


@pytest.mark.parametrize("transport", ["json", "tools"])
async def test_the_model_reads_on(plan: Plan, provider: ModelServer, transport: str) -> None:
    """By whole characters, each part a step of the run; the prompt says how, and its beginning stays unchanged."""
    parts: list[str] = []

    def choose(request: Seen) -> Say:
        if request.turns == 0:
            return call(transport, "essay")
        (result,) = results(request)
        if "more" in result:
            cut = result["observation"]
            assert (cut["head"][:9], cut["tail"][-3:], result["more"]["next_node"]) == (
                "BEGIN 0 é",
                "END",
                READ_ARTIFACT,
            )
            return call(transport, READ_ARTIFACT, artifact_id=result["more"]["args"]["artifact_id"])
        part = result["observation"]
        parts.append(part["text"])
        if "next_offset" not in part:
            return answer("read") if transport == "json" else call(transport, "final_response", answer="read")
        return call(
            transport, READ_ARTIFACT, artifact_id=part["artifact_id"], offset=part["next_offset"], length=100_000
        )

    provider.choose = choose
    story = await (await plan(TOOLS, action_transport=transport)).tell(limits={"max_steps": 30})

    assert "".join(parts) == LONG
    assert story.end.raw_answer == "read"
    steps = [step for step in story.of("step") if step.status == "started" and step.node == READ_ARTIFACT]
    assert len(steps) == len(parts) == -(-len(LONG.encode()) // (16 << 10))
    asked = [request.body["messages"] for request in provider.ledger]
    assert all(later[: len(before)] == before for before, later in itertools.pairwise(asked))
    offered = [[tool["function"]["name"] for tool in request.body.get("tools") or []] for request in provider.ledger]
    assert all(
        (READ_ARTIFACT in names) == (transport == "tools" and number > 0) for number, names in enumerate(offered)
    )


async def test_what_is_marked_is_never_read(plan: Plan, provider: ModelServer) -> None:
    """Not as an artifact of its own, and not as a part of the result that an observation belongs to."""
    read: list[dict[str, Any]] = []

    def choose(request: Seen) -> Say:
        if request.turns == 0:
            return action("report")
        if request.turns == 1:
            found = asyncio.run_coroutine_threadsafe(events(), loop).result(10)
            stored = [event for event in found if isinstance(event, ArtifactStored)]
            ids = {event.field: event.artifact_id for event in stored}
            assert ids.keys() == {"chart", "$", "$observation"}
            steps = [
                {"node": READ_ARTIFACT, "args": {"artifact_id": each}}
                for each in (ids["chart"], ids["$"], "0" * 32, ids["$observation"])
            ]
            return action("plan", steps=steps)
        read.extend(results(request))
        return answer("read")

    async def events() -> list[RunEvent]:
        return (await planning.until(run, lambda event: event.type == "observed")).events

    loop = asyncio.get_running_loop()
    provider.choose = choose
    planning = await plan(TOOLS)
    run = await planning.ask()
    story = await planning.ended(run)

    assert story.end.raw_answer == "read"
    assert [result.get("error") for result in read] == ["artifact_not_found"] * 3 + [None]
    assert read[3]["observation"]["text"].startswith('{"text":"BEGIN 0 é')
    assert "CANARY" not in json.dumps([request.body for request in provider.ledger])
    assert "CANARY" not in json.dumps([result["observation"] for result in read if "observation" in result])
