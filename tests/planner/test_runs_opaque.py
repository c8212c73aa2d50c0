"""Fields that a provider wants to see again, in whole runs."""

from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say

SPARE = "openai/spare"
NATIVE = {"default": {"action_transport": "tools"}}
SIGNED = {"extra_content": {"google": {"thought_signature": "A"}}}
LOOKS = Say(
    reasoning="I should look.",
    tool_calls=[{"name": "look", "arguments": '{"q": "x"}', **SIGNED}],
    finish_reason="tool_calls",
)
ANSWERS = Say(tool_calls=[{"name": "final_response", "arguments": '{"answer": "found"}'}], finish_reason="tool_calls")


async def test_they_return_with_the_calls_and_are_on_the_log(plan: Plan, provider: ModelServer) -> None:
    """So any planner sends them back, also after the death of the first."""
    provider.say(LOOKS, ANSWERS)
    story = await (await plan(agents=NATIVE)).tell()
    assert story.end.raw_answer == "found"
    [spoken] = [message for message in provider.ledger[1].body["messages"] if message["role"] == "assistant"]
    assert spoken["reasoning_content"] == "I should look."
    assert spoken["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]
    assert story.of("step")[0].opaque.model_dump() == {
        "model": "openai/scripted",
        "message": {"reasoning_content": "I should look."},
        "calls": [SIGNED],
    }


async def test_a_fallback_gets_none(plan: Plan, provider: ModelServer) -> None:
    """They belong to the model that sent them, which gets them again later."""
    provider.say(LOOKS, Say(status=500), LOOKS, ANSWERS)
    await (await plan(agents=NATIVE, fallback_models=[SPARE], max_provider_failures=0)).tell()
    assert [seen.body["model"] for seen in provider.ledger] == ["scripted", "scripted", "spare", "scripted"]
    assert ['"A"' in seen.text for seen in provider.ledger] == [False, True, False, True]
    last = [message for message in provider.ledger[3].body["messages"] if message["role"] == "assistant"]
    assert ["extra_content" in message["tool_calls"][0] for message in last] == [True, False]
    assert not any('"opaque"' in seen.text for seen in provider.ledger)
