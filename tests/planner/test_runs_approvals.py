"""Whole runs whose calls need a person's approval: real planner, tool runner and NATS."""

from typing import Any

from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire import subjects
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, action, answer
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
