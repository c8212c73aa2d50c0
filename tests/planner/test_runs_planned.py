"""Whole runs of the strategy `planned`: one request to the model without tools, two with, whatever happens."""

import json
from typing import Any

import pytest

from contracts.runs.events import Observed
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


AS_TEXT: dict[str, tuple[Say, str]] = {
    "JSON": (Say(text='{"type": "direct_response", "content": "Hello"}'), "Hello"),
    "fenced JSON": (Say(text='```json\n{"type": "direct_response", "content": "Hello"}\n```'), "Hello"),
    "prose": (Say(text="Hello there"), "Hello there"),
    "prose with blanks": (Say(text="\n  Hello there \n"), "  Hello there \n"),
    "content with blanks": (Say(text='{"type": "direct_response", "content": " Hello\\n"}'), " Hello\n"),
    "content first": (Say(text='{"content": "Hello", "type": "direct_response"}'), "Hello"),
}


@pytest.mark.sample(4)
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


PLAN_IN_A_FENCE = json.dumps({"type": "tool_calls", "calls": [RESEARCH]})


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"I plan this:\n```json\n{PLAN_IN_A_FENCE}\n```\nShall I?", 1),
        (f"Two ways:\n```json\n{PLAN_IN_A_FENCE}\n```\nor\n```json\n{PLAN_IN_A_FENCE}\n```", 0),
        ('A plan has this form:\n```json\n{"type": "tool_calls", "calls": [{"tool_name": "mail"}]}\n```', 0),
    ],
)
async def test_the_only_plan_in_a_prose_counts(plan: Plan, provider: ModelServer, text: str, calls: int) -> None:
    """Where it would run: such a model cannot call functions. Any other text is the answer."""
    tools = Tools()
    provider.say(Say(text=text), Say(text="Done."))
    story = await (await plan(tools.of())).tell(strategy="planned")
    assert (len(tools.calls), story.end.raw_answer) == (calls, "Done." if calls else text)
    assert ["its plan into a text" in line for line in story.end.warnings] == [True] * calls


FIELDS = {"language": "de", "route": "sales", "suggested_actions": [{"action_id": "a", "label": "A"}], "other": 1}
DIRECT = {"type": "direct_response", "content": "Which one?", "requires_followup": True, **FIELDS}


@pytest.mark.parametrize("replies", [[native(DIRECT)], [planned(RESEARCH), Say(text=json.dumps(DIRECT))]])
async def test_an_answer_may_have_fields(plan: Plan, provider: ModelServer, replies: list[Say]) -> None:
    """So an agent with `followup: pause` waits for the user, and goes on with the reply."""
    provider.say(*replies, native({"type": "direct_response", "content": "Then that one."}))
    planning = await plan(Tools().of(), agents={"default": {"followup": "pause"}})
    run = await planning.ask(strategy="planned")
    [pause] = await planning.paused(run)
    assert pause.title == "Which one?"
    assert (await planning.add(run, "the first")).code is None
    assert (await planning.ended(run)).end.raw_answer == "Then that one."


async def test_an_answer_keeps_its_fields(plan: Plan, provider: ModelServer) -> None:
    """Those that an answer may have."""
    provider.say(planned(RESEARCH), Say(text=json.dumps(DIRECT)))
    end = (await (await plan(Tools().of())).tell(strategy="planned")).end
    assert (end.raw_answer, end.language, end.route, end.requires_followup) == ("Which one?", "de", "sales", True)
    assert [action.label for action in end.suggested_actions] == ["A"]
    assert "other" not in end.extra


async def test_a_failed_request_for_the_answer_says_what_ran(plan: Plan, provider: ModelServer) -> None:
    """The calls have had their effects."""
    provider.say(planned(RESEARCH, write(blog_id="b")), Say(status=401))
    story = await (await plan(Tools().of())).tell(strategy="planned")
    ran = "the plan was carried out, its calls: research: success, write: success; "
    assert story.end.error.startswith(ran)
    assert any(line.startswith(ran) for line in story.end.payload.warnings)


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


async def test_the_fallback_model_goes_on_with_the_plan(plan: Plan, provider: ModelServer) -> None:
    """A failed request for the answer is an attempt; nothing runs again."""
    tools = Tools()
    provider.say(planned(RESEARCH), Say(status=503, times=3), Say(text="Done."))
    story = await (await plan(tools.of(), fallback_models=["openai/other"])).tell(strategy="planned")
    assert (story.end.raw_answer, len(tools.calls)) == ("Done.", 1)
    assert provider.ledger[-1].body["model"] == "other"


LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "max_steps": ({"max_steps": 1}, "max_steps of 1"),
    "max_tool_calls": ({"max_tool_calls": 1}, "max_tool_calls of 1"),
    "max_tokens": ({"max_tokens": 5}, "max_tokens of 5"),
}


@pytest.mark.parametrize("case", LIMITS)
async def test_a_plan_that_the_limits_do_not_carry_runs_nothing(plan: Plan, provider: ModelServer, case: str) -> None:
    """The run ends, and names the limit."""
    limits, named = LIMITS[case]
    tools = Tools()
    provider.say(planned(RESEARCH, write(blog_id="x")), Say(text="Done."))
    story = await (await plan(tools.of())).tell(strategy="planned", limits=limits)
    assert (story.end.type, story.end.reason) == ("done", "budget_exhausted")
    assert any(named in warning for warning in story.end.warnings)
    assert (tools.calls, len(provider.ledger)) == ([], 1)
    assert story.shown() == story.end.raw_answer


@pytest.mark.parametrize("last", [False, True])
async def test_the_deadline_halts_the_plan(plan: Plan, provider: ModelServer, *, last: bool) -> None:
    """The model still answers from what there is; the payload names the deadline."""
    tools = Tools(written=3.0)
    calls = [RESEARCH, write(blog_id="x")] + ([] if last else [RESEARCH])
    provider.say(planned(*calls), Say(text="In part."))
    story = await (await plan(tools.of())).tell(strategy="planned", limits={"deadline_s": 1.5})
    assert (story.end.reason, story.end.raw_answer, story.end.route) == ("budget_exhausted", "In part.", "partial")
    assert any("deadline_s of 1.5" in warning for warning in story.end.warnings)
    assert story.of("step")[3].statuses == ["success", "failed"] + ([] if last else ["not_executed"])
    assert len(provider.ledger) == 2


async def test_an_input_leads_to_a_new_plan(plan: Plan, provider: ModelServer) -> None:
    """A person adds to the question while calls run: the model may need further calls for it."""
    tools = Tools(written=1.0)
    provider.say(planned(RESEARCH, write(blog_id="x")), planned(RESEARCH), Say(text="Done."))
    planning = await plan(tools.of())
    run = await planning.ask(strategy="planned")
    await planning.until(run, lambda event: isinstance(event, Observed))
    await planning.add(run, "And look again.")
    story = await planning.ended(run)
    assert story.end.raw_answer == "Done."
    assert [name for name, _ in tools.calls] == ["research", "write", "research"]
    assert "And look again." in provider.ledger[1].text


@pytest.mark.parametrize("decision", ["approve", "edit"])
async def test_a_person_may_change_arguments_that_hide_values(plan: Plan, provider: ModelServer, decision: str) -> None:
    """The model is told which ones, and reads no value. An approved call counts once."""
    tools = Tools()
    agents = {"careful": {"strategy": "planned", "approvals": [{"name": "w", "tools": ["write"]}]}}
    provider.say(planned(RESEARCH, write(blog_id="$0.output.secret")), Say(text="Written."))
    planning = await plan(tools.of(), agents=agents)
    run = await planning.ask(agent="careful")
    (pause,) = await planning.paused(run)
    edited = {"args": {**(pause.arguments or {}), "text": "short"}} if decision == "edit" else {}
    await planning.decide(pause, run, decision, **edited)
    story = await planning.ended(run)
    assert tools.calls[1] == ("write", {"blog_id": "CANARY", **edited.get("args", {})})
    assert ('["blog_id", "text"]' in provider.ledger[1].text.replace("\\", "")) == bool(edited)
    assert "CANARY" not in provider.ledger[1].text
    assert story.end.usage.tool_calls == len(tools.calls) == 2
