"""Turns of the strategy `chat`: text, calls of tools, and hidden blocks."""

from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say

CHAT = {"default": {"strategy": "chat"}}
LOOKS = [{"name": "look", "arguments": '{"q": "x"}'}]
VALUES = '\n\n**SUGGESTED_VALUES:** [{"label": "More", "value": "Show more"}]'


async def test_text_streams_around_a_call_and_blocks_are_hidden(plan: Plan, provider: ModelServer) -> None:
    """The chunks joined are the answer. The next prompt has what the model said, as it said it."""
    provider.say(
        Say(text="Let me look.", tool_calls=LOOKS, finish_reason="tool_calls"), Say(text=f" Found it.{VALUES}")
    )
    story = await (await plan(agents=CHAT)).tell()
    assert story.facts() == ["run_started", "asked", "step", "observed", "step", "asked", "step", "step", "done"]
    assert story.shown() == story.end.raw_answer == "Let me look. Found it."
    assert story.end.extra == {
        "suggested_values": [{"label": "More", "value": "Show more"}],
        "tool_positions": [{"call_id": "1-1", "tool": "look", "offset": 12}],
    }
    assert (story.of("chunk")[0].part, story.of("chunk")[0].offset) == (0, 0)
    assert {chunk.action_seq for chunk in story.of("chunk")} == {1}
    assert [(step.part, step.said, step.shown_to) for step in story.of("step") if step.status == "started"] == [
        (0, "Let me look.", 12),
        (1, f" Found it.{VALUES}", 22),
    ]
    sent = provider.ledger[1].body["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    assert sent[2]["content"] == "Let me look."
