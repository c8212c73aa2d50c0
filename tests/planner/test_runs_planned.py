"""Whole runs of the strategy `planned`: one request to the model without tools, two with, whatever happens."""

import json

import pytest

from contracts.wire.faults import Fault
from tests.planner.conftest import Plan
from tests.planner.planned_tools import RESEARCH, Tools, native, planned, steps, write
from tests.support.model_server import ModelServer, Say, words


async def test_a_plan_with_tools_takes_two_requests(plan: Plan, provider: ModelServer) -> None:
    """The calls run in order, each with what the earlier ones returned; the answer is streamed."""
    tools = Tools()
    provider.say(planned(RESEARCH, write(blog_id="$0.output.blog_id", text="$0.output.title")), Say(text=words(100)))
    story = await (await plan(tools.of())).tell(strategy="planned")
    assert story.end.raw_answer == story.shown() == words(100)
    assert len(story.chunks()) > 1
    assert tools.calls == [("research", {"topic": "AI"}), ("write", {"blog_id": "b-1", "text": "AI now"})]
    assert len(provider.ledger) == 2
    assert steps(story) == [
        ("plan", "started"),
        ("plan", "succeeded"),
        ("execute", "started"),
        ("execute", "succeeded"),
        ("respond", "started"),
        ("respond", "succeeded"),
    ]
    execution = story.of("step")[3]
    assert (execution.statuses, execution.halt_reason) == (["success", "success"], None)
    asked, answered = (seen.body for seen in provider.ledger)
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["__planning__"]
    assert "tools" not in answered
    assert answered["messages"][: len(asked["messages"])] == asked["messages"]
    assert [each["role"] for each in answered["messages"][len(asked["messages"]) :]] == ["assistant", "user"]
    assert "1. research - SUCCESS" in answered["messages"][-1]["content"]
    assert "CANARY" not in provider.ledger[1].text


async def test_the_schema_of_the_plan_names_the_tools_of_the_run(plan: Plan, provider: ModelServer) -> None:
    """Its root has no combinator. Without tools, only a direct response can be given."""
    provider.say(native({"type": "direct_response", "content": "hi"}))
    planning = await plan(Tools().of())
    await planning.tell(strategy="planned", tools=["research", "write"])
    await planning.tell(strategy="planned", tools=[])
    with_tools, without = (seen.body["tools"][0]["function"]["parameters"] for seen in provider.ledger)
    assert with_tools["properties"]["calls"]["items"]["properties"]["tool_name"]["enum"] == ["research", "write"]
    assert not {"oneOf", "anyOf", "allOf"} & with_tools.keys()
    assert without["properties"]["type"]["enum"] == ["direct_response"]
    system = provider.ledger[0].body["messages"][0]["content"]
    assert '"result":{"type":"object","properties":{"blog_id"' in system


INVALID: dict[str, tuple[Say, str]] = {
    "a missing field": (planned(RESEARCH, write(blog_id="$0.output.blogId")), "field_not_found"),
    "a wrong type": (planned(RESEARCH, write(blog_id="x", words="$0.output.title")), "type_mismatch"),
    "an unknown tool": (planned(RESEARCH, {"tool_name": "nobody", "arguments": {}}), "unknown_tool"),
    "no arguments": (planned({"tool_name": "research", "arguments": "x"}), "arguments_not_object"),
    "no calls": (native({"type": "tool_calls", "calls": []}), "empty_plan"),
    "no type": (native({"calls": []}), "unknown_type"),
    "no JSON": (Say(tool_calls=[{"name": "__planning__", "arguments": '{"type": "tool_c'}]), "unparseable"),
    "too many calls": (planned(*[RESEARCH] * 65), "too_many_calls"),
    "large arguments": (planned(write(blog_id="x" * 70_000)), "arguments_too_large"),
    "a large plan": (planned(*[write(blog_id="x" * 60_000)] * 20, piece=10_000), "arguments_too_large"),
    "deep arguments": (planned(write(blog_id=json.loads("[" * 40 + "]" * 40))), "too_deep"),
    "very deep arguments": (
        Say(
            tool_calls=[
                {
                    "name": "__planning__",
                    "arguments": '{"type":"tool_calls","calls":[{"tool_name":"write","arguments":{"blog_id":'
                    + "[" * 5000
                    + "]" * 5000
                    + "}}]}",
                }
            ]
        ),
        "too_deep",
    ),
}


AS_TEXT: dict[str, tuple[Say, str]] = {
    "JSON": (Say(text='{"type": "direct_response", "content": "Hello"}'), "Hello"),
    "fenced JSON": (Say(text='```json\n{"type": "direct_response", "content": "Hello"}\n```'), "Hello"),
    "prose": (Say(text="Hello there"), "Hello there"),
    "prose with blanks": (Say(text="\n  Hello there \n"), "\n  Hello there \n"),
    "content with blanks": (Say(text='{"type": "direct_response", "content": " Hello\\n"}'), " Hello\n"),
    "content first": (Say(text='{"content": "Hello", "type": "direct_response"}'), "Hello"),
}


@pytest.mark.parametrize("transport", ["json", "tools"])
@pytest.mark.parametrize("case", AS_TEXT)
async def test_a_text_may_hold_the_plan(plan: Plan, provider: ModelServer, case: str, transport: str) -> None:
    """Models without tool calling write the plan as JSON; a text without one is the answer."""
    reply, expected = AS_TEXT[case]
    provider.say(reply)
    story = await (await plan(Tools().of(), action_transport=transport)).tell(strategy="planned")
    assert story.end.raw_answer == story.shown() == expected
    assert len(provider.ledger) == 1
    assert ("tools" in provider.ledger[0].body) == (transport == "tools")


async def test_a_plan_that_an_answer_shows_does_not_run(plan: Plan, provider: ModelServer) -> None:
    """A text beside which the model could have called the function is the answer, whatever stands in it."""
    tools = Tools()
    shown = json.dumps({"type": "tool_calls", "calls": [RESEARCH]})
    provider.say(Say(text=f"A plan looks like this:\n```json\n{shown}\n```"))
    story = await (await plan(tools.of())).tell(strategy="planned")
    assert story.end.raw_answer == story.shown() == f"A plan looks like this:\n```json\n{shown}\n```"
    assert (tools.calls, len(provider.ledger)) == ([], 1)


async def test_a_declared_field_that_is_absent_fails_the_call(plan: Plan, provider: ModelServer) -> None:
    """The tool is not called with an invented value."""
    tools = Tools()
    provider.say(planned(RESEARCH, write(blog_id="$0.output.parts.3.url")), Say(text="Done."))
    tools.result = {"blog_id": "b", "title": "t", "parts": [{"url": "u"}]}
    story = await (await plan(tools.of())).tell(strategy="planned")
    execution = story.of("step")[3]
    assert execution.statuses == ["success", "failed"]
    assert execution.halt_reason.startswith("missing_output_field")
    assert "parts.3" in execution.halt_reason
    assert [name for name, _ in tools.calls] == ["research"]


async def test_hidden_values_reach_the_tool_and_not_the_model(plan: Plan, provider: ModelServer) -> None:
    """They reach neither where another call of the plan is wrong."""
    tools = Tools()
    provider.say(
        planned(RESEARCH, write(blog_id="$0.output.secret"), write(blog_id="x", words="$0.output.parts")),
        Say(text="Done."),
    )
    tools.result = {"blog_id": "b", "title": "t", "secret": "CANARY", "parts": [{"url": "u"}]}
    story = await (await plan(tools.of())).tell(strategy="planned")
    assert steps(story)[0] == ("plan", "invalid"), "an array is no integer"
    assert tools.calls == []
    provider.reset()
    provider.say(planned(RESEARCH, write(blog_id="$0.output.secret")), Say(text="Done."))
    story = await (await plan(tools.of())).tell(strategy="planned")
    assert tools.calls[-1] == ("write", {"blog_id": "CANARY"})
    assert "CANARY" not in provider.ledger[1].text


async def test_the_answer_may_be_asked_for_once_more(plan: Plan, provider: ModelServer) -> None:
    """A reply without a text is an attempt; the next one counts."""
    tools = Tools()
    provider.say(planned(RESEARCH), planned(RESEARCH), Say(text="<think>hm</think>\n\nDone."))
    story = await (await plan(tools.of(), action_transport="json")).tell(strategy="planned")
    assert story.end.raw_answer == story.shown() == "Done."
    assert len(tools.calls) == 1


async def test_a_complaint_quotes_no_value_of_an_earlier_result(plan: Plan, provider: ModelServer) -> None:
    """Neither the log nor the model is given it, though the tool's schema refused it."""
    tools = Tools({"blog_id": "b", "title": "t", "secret": "CANARY"})
    served = tools.of()
    spec, handler = served["write"]
    schema = {"type": "object", "properties": {"blog_id": {"type": "string", "maxLength": 3}}}
    served["write"] = (spec.model_copy(update={"input_schema": schema}), handler)
    provider.say(planned(RESEARCH, write(blog_id="$0.output.secret")), Say(text="Done."))
    story = await (await plan(served)).tell(strategy="planned")
    assert story.of("step")[3].statuses == ["success", "failed"]
    assert story.of("observed")[1].failure.code == "invalid_args"
    assert "CANARY" not in story.of("step")[3].halt_reason
    assert "CANARY" not in provider.ledger[1].text
    assert [name for name, _ in tools.calls] == ["research"]


async def test_an_answer_may_be_revised(plan: Plan, provider: ModelServer) -> None:
    """By the agent's critique; the plan is not carried out again."""
    tools = Tools()
    agents = {"judged": {"strategy": "planned", "reflection": {"threshold": 0.9, "max_revisions": 1}}}
    scores = [Say(text=json.dumps({"score": score, "feedback": "too short"})) for score in (0.2, 1.0)]
    provider.say(planned(RESEARCH), Say(text="Short."), scores[0], Say(text="Longer and better."), scores[1])
    story = await (await plan(tools.of(), agents=agents)).tell(agent="judged")
    assert story.end.raw_answer == story.shown() == "Longer and better."
    assert len(tools.calls) == 1
    assert [asked.turn for asked in story.of("asked")] == [1, 2, 2]
    assert "too short" in provider.ledger[3].text


async def test_results_too_long_for_the_model_are_compacted(plan: Plan, provider: ModelServer) -> None:
    """The answer is asked for again, under the next attempt."""
    tools = Tools({"blog_id": "b", "title": "t" * 9000})
    error = {
        "message": "maximum context length exceeded",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
    provider.say(planned(RESEARCH), Say(status=400, error=error), Say(text="Done."))
    story = await (await plan(tools.of())).tell(strategy="planned")
    assert (story.end.raw_answer, len(tools.calls)) == ("Done.", 1)
    before, after = (len(seen.text) for seen in provider.ledger[1:])
    assert after < before


async def test_a_conversation_comes_before_the_question(plan: Plan, provider: ModelServer) -> None:
    """Skills, prompt, earlier turns, question: in both requests."""
    agents = {"writer": {"strategy": "planned", "skills": ["Rhyme."], "system_prompt": "Be kind."}}
    provider.say(planned(RESEARCH), Say(text="Done."))
    said = [{"role": "user", "content": "I am Ann."}, {"role": "assistant", "content": "Hello Ann."}]
    await (await plan(Tools().of(), agents=agents)).tell("What now?", agent="writer", messages=said)
    for seen in provider.ledger:
        parts = ("Rhyme.", "Be kind.", "I am Ann.", "Hello Ann.", "What now?")
        places = [seen.text.index(part) for part in parts]
        assert places == sorted(places)


async def test_the_fallback_model_goes_on_with_the_plan(plan: Plan, provider: ModelServer) -> None:
    """A failed request for the answer is an attempt; nothing runs again."""
    tools = Tools()
    provider.say(planned(RESEARCH), Say(status=503, times=3), Say(text="Done."))
    story = await (await plan(tools.of(), fallback_models=["openai/other"])).tell(strategy="planned")
    assert (story.end.raw_answer, len(tools.calls)) == ("Done.", 1)
    assert provider.ledger[-1].body["model"] == "other"


async def test_a_model_that_fails_to_answer_does_not_hide_the_failed_tool(plan: Plan, provider: ModelServer) -> None:
    """The error of the run names both."""
    tools = Tools(Fault(code="tool_error", reason="no network"))
    provider.say(planned(RESEARCH), Say(status=400))
    story = await (await plan(tools.of())).tell(strategy="planned")
    assert story.end.type == "error"
    assert "no network" in story.end.error
    assert len(provider.ledger) == 2
