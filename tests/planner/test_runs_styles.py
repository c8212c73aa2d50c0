"""Weak, plain, reasoning and tool-calling models come to the same answer through the same events."""

import json
import os
import re
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, Say
from tests.support.run_services import Handler, Planning, Story

STYLES = sorted(path.stem for path in (Path(__file__).parent / "styles").glob("*.json"))
SNAPSHOT = Path(__file__).parent / "events.snapshot.txt"
ANSWER = "North is ahead of south."
RESULTS = {"type": "object", "properties": {"results": {"type": "array"}}, "required": ["results"]}


async def merge(args: dict[str, Any]) -> Any:
    return {"merged": [each["text"] for each in args["results"]]}


ALL: dict[str, tuple[ToolSpec, Handler]] = {
    **TOOLS,
    "merge": (ToolSpec(name="merge", input_schema=RESULTS, idempotent=True), merge),
}


def style(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / "styles" / f"{name}.json").read_text())
    return found


async def run_in_style(
    planning: Planning, provider: ModelServer, name: str, piece: int = 7, agent: str = "default"
) -> Story:
    provider.reset()
    provider.say(*(Say(**reply, piece=piece) for reply in style(name)["replies"]))
    # The server is shared: tools of an earlier test may not have been forgotten yet.
    return await planning.tell("Is north ahead of south?", agent=agent, tools=sorted(ALL))


@pytest.mark.parametrize("name", STYLES)
async def test_every_style_comes_to_the_same_end(plan: Plan, provider: ModelServer, name: str) -> None:
    """In pieces of any length: the same calls with the same arguments, and the same answer, shown as it is stored."""
    planning = await plan(ALL, action_transport=style(name).get("transport", "json"))
    for piece in (1, 7, 4000):
        story = await run_in_style(planning, provider, name, piece)
        assert (story.end.type, story.end.raw_answer) == ("done", ANSWER)
        assert story.shown() == ANSWER
        calls = [(call.tool, call.args) for step in story.of("step") + story.of("called") for call in step.calls]
        assert calls == [
            ("look", {"q": "sales"}),
            ("look", {"q": "north"}),
            ("look", {"q": "south"}),
            ("merge", {"results": [{"text": "found north"}, {"text": "found south"}]}),
        ]
        assert story.end.usage.tool_calls == 4
        assert story.end.confidence == (None if name == "weak" else 0.8)


def written(story: Story) -> str:
    """The facts of a run, one a line, without what differs from run to run."""
    lines = []
    for event in story.events:
        if event.type in {"chunk", "thinking", "call_started"}:
            continue
        kept = event.model_dump(mode="json", exclude_defaults=True)
        if event.type == "run_started":
            kept = {name: kept.get(name) for name in ("action_format", "action_transport", "model", "limits")}
        for name in ("run_id", "by", "holder", "latency_ms", "usage", "model", "last_stream_seq"):
            kept.pop(name, None)
        lines.append(f"{event.type} {json.dumps(kept, sort_keys=True)}")
    # Calls at once are settled in any order.
    groups = [
        sorted(group) if kind == "observed" else list(group)
        for kind, group in groupby(lines, lambda line: line.partition(" ")[0])
    ]
    return "\n".join(chain.from_iterable(groups))


FORMS = {
    "auto": ("plain", {}),
    "unified": ("plain", {"action_format": "unified"}),
    "legacy": ("reasoning", {"action_format": "legacy"}),
    "native": ("native", {"action_transport": "tools"}),
}


async def test_the_events_are_the_ones_that_were_reviewed(plan: Plan, provider: ModelServer) -> None:
    """The same run in every form, each an agent's: what a listener sees, and what the model saw.

    WRITE_SNAPSHOTS=1 writes it again.
    """
    planning = await plan(ALL, agents={agent: options for agent, (_, options) in FORMS.items()})
    parts = []
    for agent, (name, _) in FORMS.items():
        story = await run_in_style(planning, provider, name, agent=agent)
        parts += [f"## {agent}: a {name} model", written(story), "### the conversation before its last decision"]
        parts += [json.dumps(message, ensure_ascii=False) for message in provider.ledger[2].body["messages"][1:]]
    text = re.sub(r"\d{4}-\d\d-\d\d, \w+", "<today>", "\n".join(parts) + "\n")
    if os.environ.get("WRITE_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()


async def test_native_calls_are_offered_and_forced(plan: Plan, provider: ModelServer) -> None:
    """Tools and opcodes as functions, in the order of the catalogue; none of them in the prompt."""
    planning = await plan(ALL, action_transport="tools")
    await run_in_style(planning, provider, "native")
    body = provider.ledger[0].body
    assert [tool["function"]["name"] for tool in body["tools"]] == ["fail", "look", "merge", "final_response", "plan"]
    assert body["tool_choice"] == "required"
    assert "response_format" not in body
    assert "<tools>" not in provider.ledger[0].text
    assert body["tools"][1]["function"]["parameters"]["required"] == ["q"]
    ids = [message["tool_call_id"] for message in provider.ledger[-1].body["messages"] if message["role"] == "tool"]
    assert ids == [
        call["id"] for message in provider.ledger[-1].body["messages"] for call in message.get("tool_calls") or []
    ]


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        ({"tool_calls": [{"name": "look", "arguments": '{"q": "a"}'}, {"name": "look", "arguments": '{"q": "b"}'}]}, 2),
        (
            {
                "tool_calls": [
                    {"name": "look", "arguments": '{"q": "a"}'},
                    {"name": "final_response", "arguments": '{"answer": "CANARY"}'},
                ]
            },
            1,
        ),
        ({"text": "Let me see", "tool_calls": [{"name": "look", "arguments": '{"q": "a"}'}]}, 1),
        ({"text": '{"next_node": "look", "args": {"q": "a"}}'}, 1),
        ({"tool_calls": [{"name": "look", "arguments": '{"q": "CANARY'}]}, 0),
        ({"tool_calls": [{"name": "look", "arguments": ""}]}, 0),
    ],
)
async def test_other_ways_of_native_calls(plan: Plan, provider: ModelServer, reply: dict[str, Any], calls: int) -> None:
    """Several at once are a plan; text beside calls is replaced by the answer; a broken call is repaired.

    Nothing of a call is shown.
    """
    provider.say(Say(**reply), Say(text="It is done."))
    story = await (await plan(ALL, action_transport="tools")).tell()
    assert (story.end.raw_answer, story.shown()) == ("It is done.", "It is done.")
    assert len(story.of("observed")) == calls
    assert len(story.of("repaired")) == (0 if calls else 1)
    assert "CANARY" not in "".join(chunk.text for chunk in story.of("chunk"))
