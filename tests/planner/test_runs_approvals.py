"""Whole runs whose calls need a person's approval: real planner, tool runner and NATS."""

from typing import Any

import pytest

from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire import subjects
from services.shared.redaction.stored_values import as_reference
from services.shared.runs.waiting import waiting_after
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.run_services import Handler

SUM = {"type": "object", "properties": {"sum": {"type": "integer", "maximum": 1000}}, "required": ["sum"]}
SPEC = ToolSpec(
    name="pay",
    description="Transfer money.",
    input_schema=SUM,
    side_effects="external",
    requires_approval=True,
    idempotent=True,
)
STEPS = [{"node": "pay", "args": {"sum": 5}}, {"node": "look", "args": {"q": "x"}}]


def paying(paid: list[Any], **changes: Any) -> dict[str, tuple[ToolSpec, Handler]]:
    """The tools, with one that pays and needs an approval."""

    async def pay(args: dict[str, Any]) -> Any:
        paid.append(args)
        return {"text": f"paid {args['sum']}"}

    return {**TOOLS, "pay": (SPEC.model_copy(update=changes), pay)}


@pytest.mark.parametrize("max_parallel", [1, 8])
async def test_one_branch_waits_while_the_other_runs(plan: Plan, provider: ModelServer, max_parallel: int) -> None:
    """After the approval the call is made, and the model gets both results."""
    paid: list[Any] = []
    planning = await plan(paying(paid))
    provider.say(action("plan", steps=STEPS), answer("so be it"))
    run = await planning.ask(limits={"max_parallel": max_parallel})
    [pause] = await planning.paused(run)
    story = await planning.until(run, lambda event: event.type == "observed")
    assert story.of("observed")[0].tool == "look"
    [view] = waiting_after(story.events).views(run)
    assert (view.tool, view.arguments, view.token) == ("pay", {"sum": 5}, pause.token)
    assert paid == []
    assert (await planning.decide(pause, run, "approve", note="fine")).code is None
    story = await planning.ended(run)
    assert paid == [{"sum": 5}]
    assert [resumed.digest for resumed in story.of("resumed")] == [pause.digest]
    assert {each.status for each in story.of("observed")} == {"succeeded"}
    for text in ("paid 5", "found x", "The person who approved pay says: fine"):
        assert text in provider.ledger[-1].text


async def test_a_rejection_is_a_result(plan: Plan, provider: ModelServer) -> None:
    """The model gets the note. The call is never sent, and nobody is asked a second time."""
    paid: list[Any] = []
    planning = await plan(paying(paid))
    provider.say(action("pay", sum=5), answer("so be it"))
    run = await planning.ask()
    [pause] = await planning.paused(run)
    await planning.decide(pause, run, "reject", note="too much")
    story = await planning.ended(run)
    [observed] = story.of("observed")
    assert observed.failure.code == "rejected"
    assert "too much" in provider.ledger[-1].text
    assert paid == []
    assert await planning.bus.last(subjects.CALLS, subjects.call("default", run, "pay")) is None
    assert (await planning.decide(pause, run, "approve")).code == "run_ended"


async def test_an_edit_is_checked_and_executed(plan: Plan, provider: ModelServer) -> None:
    """Arguments that do not fit leave the pause open. The model learns what ran."""
    paid: list[Any] = []
    planning = await plan(paying(paid))
    provider.say(action("pay", sum=5), answer("so be it"))
    run = await planning.ask()
    [pause] = await planning.paused(run)
    refused = await planning.decide(pause, run, "edit", args={"sum": 5000})
    assert (refused.code, "maximum" in refused.reason) == ("invalid_input", True)
    assert (await planning.decide(pause, run, "answer", input=1)).code == "invalid_decision"
    changed = pause.model_copy(update={"token": pause.token + "0"})
    assert (await planning.decide(changed, run, "approve")).code == "pause_changed"
    assert (await planning.decide(pause, run, "edit", args={"sum": 3})).code is None
    await planning.ended(run)
    assert paid == [{"sum": 3}]
    assert "A person changed the arguments of pay" in provider.ledger[-1].text


async def test_a_policy_asks_again_about_edited_arguments(plan: Plan, provider: ModelServer) -> None:
    """The old token is worth nothing then."""
    paid: list[Any] = []
    rule = {"name": "payments", "tools": ["pay"], "arguments": {"properties": {"sum": {"minimum": 4}}}}
    agents = {"default": {"approvals": [{**rule, "reapprove_edits": True}]}}
    planning = await plan(paying(paid, requires_approval=False), agents=agents)
    provider.say(action("plan", steps=[STEPS[0], {"node": "pay", "args": {"sum": 1}}]), answer("so be it"))
    run = await planning.ask()
    [pause] = await planning.paused(run)
    assert (pause.rule, pause.source) == ("payments", "policy")
    assert (await planning.decide(pause, run, "edit", args={"sum": 7})).code is None
    pauses = await planning.paused(run, 2)
    assert (pauses[1].pause_id, pauses[1].revision, pauses[1].arguments) == (pause.pause_id, 2, {"sum": 7})
    assert (await planning.decide(pause, run, "approve")).code == "pause_changed"
    assert (await planning.decide(pauses[1], run, "approve")).code is None
    await planning.ended(run)
    assert sorted(each["sum"] for each in paid) == [1, 7]


async def test_once_per_session(plan: Plan, provider: ModelServer) -> None:
    """A second call in the run needs no further approval, and bears one about itself."""
    paid: list[Any] = []
    agents = {"default": {"approvals": [{"name": "once", "tools": ["pay"], "ask": "once_per_session"}]}}
    planning = await plan(paying(paid), agents=agents)
    provider.say(action("pay", sum=5), action("pay", sum=6), answer("so be it"))
    run = await planning.ask()
    [pause] = await planning.paused(run)
    await planning.decide(pause, run, "approve")
    story = await planning.ended(run)
    assert paid == [{"sum": 5}, {"sum": 6}]
    assert len(story.of("paused")) == 1


async def test_a_join_waits_too(plan: Plan, provider: ModelServer) -> None:
    """After its branches, with the arguments that they give it."""
    paid: list[Any] = []
    planning = await plan(paying(paid))
    provider.say(
        action("plan", steps=STEPS[1:], join={"node": "pay", "args": {}, "inject": {"sum": "$success_count"}}),
        answer("so be it"),
    )
    run = await planning.ask()
    [pause] = await planning.paused(run)
    assert (pause.call_id, pause.arguments, paid) == ("1-join", {"sum": 1}, [])
    await planning.decide(pause, run, "approve")
    await planning.ended(run)
    assert paid == [{"sum": 1}]


async def test_native_calls(plan: Plan, provider: ModelServer) -> None:
    """Also several at once."""
    paid: list[Any] = []
    planning = await plan(paying(paid), action_transport="tools")
    calls = [{"name": "pay", "arguments": '{"sum": 5}'}, {"name": "look", "arguments": '{"q": "x"}'}]
    final = Say(tool_calls=[{"name": "final_response", "arguments": '{"answer": "so be it"}'}])
    provider.say(Say(tool_calls=calls, finish_reason="tool_calls"), final)
    run = await planning.ask()
    [pause] = await planning.paused(run)
    await planning.decide(pause, run, "approve")
    await planning.ended(run)
    assert paid == [{"sum": 5}]


async def test_nobody_decides(plan: Plan, provider: ModelServer) -> None:
    """The call is rejected when its pause expires, and the run goes on."""
    paid: list[Any] = []
    agents = {"default": {"approvals": [{"name": "soon", "tools": ["pay"], "expires_in_s": 1}]}}
    planning = await plan(paying(paid), agents=agents)
    provider.say(action("pay", sum=5), answer("so be it"))
    story = await planning.tell()
    assert (paid, story.of("resumed")[0].by) == ([], "timer")
    assert story.of("observed")[0].failure.code == "approval_expired"


async def test_the_message_of_an_approved_call(plan: Plan, provider: ModelServer) -> None:
    """It bears the approval and the rules, so that tool_runner can check the call by itself."""
    paid: list[Any] = []
    agents = {"default": {"approvals": [{"name": "all", "tools": ["*"]}]}}
    planning = await plan(paying(paid), agents=agents)
    provider.say(action("pay", sum=5), answer("so be it"))
    run = await planning.ask()
    [pause] = await planning.paused(run)
    sent: list[CallRequested] = []

    async def note(message: Any) -> None:
        sent.append(CallRequested.model_validate_json(message.data))

    subscription = await planning.bus.subscribe(subjects.call("default", run, "pay"), note)
    await planning.bus.barrier()
    await planning.decide(pause, run, "approve")
    await planning.ended(run)
    await subscription.stop()
    assert sent[0].approval is not None
    assert (sent[0].approval.pause_id, sent[0].approval.digest) == (pause.pause_id, pause.digest)
    assert [rule.name for rule in sent[0].approval_rules] == ["all"]


@pytest.mark.usefixtures("store")
async def test_large_arguments_stand_in_the_log_once(plan: Plan, provider: ModelServer) -> None:
    """The pause refers to them. What is approved and sent is the whole."""
    received: list[Any] = []

    async def send(args: dict[str, Any]) -> Any:
        received.append(args)
        return {"sent": True}

    spec = ToolSpec(name="send", requires_approval=True, idempotent=True)
    planning = await plan({"send": (spec, send)})
    text = " ".join(map(str, range(9_000)))
    provider.say(action("send", text=text, to="me"), answer("so be it"))
    run = await planning.ask()
    [pause] = await planning.paused(run)
    assert pause.arguments is not None
    assert (pause.arguments["to"], as_reference(pause.arguments["text"]) is not None) == ("me", True)
    await planning.decide(pause, run, "approve")
    await planning.ended(run)
    assert received == [{"text": text, "to": "me"}]
