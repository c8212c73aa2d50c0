"""No path to a tool leads past an approval: tool_runner checks each call again, whatever its planner has checked."""

from typing import Any

import pytest

from contracts.runs.inbox import CallFinished
from contracts.runs.pauses import ApprovalRule, CallApproval
from contracts.tools.messages import ToolSpec
from contracts.wire import names
from runwire import tool
from services.messaging.connection import Bus
from services.shared.tools.approvals import call_digest
from services.tool_runner.errors import ApprovalMissing
from services.tool_runner.execution import check_approval

from .conftest import Direct, Planner, Serve, Start, call_requested, fault_of

RULE = ApprovalRule(name="large", tools=["transfer"], arguments={"properties": {"amount": {"minimum": 100}}})
paid: list[int] = []


@tool(idempotent=True)
async def transfer(amount: int) -> str:
    """Needs an approval where a rule says so."""
    paid.append(amount)
    return "paid"


@tool(requires_approval=True, idempotent=True)
async def give_away(amount: int) -> str:
    """Always needs an approval."""
    paid.append(amount)
    return "given"


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    paid.clear()


@pytest.fixture
async def runner(start_runner: Start, serve_tools: Serve) -> Bus:
    serve_tools(transfer, give_away)
    return await start_runner()


def approval(run: str, spec: ToolSpec, amount: int, revision: int = 1) -> CallApproval:
    """What a person has approved."""
    digest = call_digest("default", run, "1-0", spec.name, spec.digest(), {"amount": amount}, revision)
    return CallApproval(digest=digest, revision=revision)


def is_missing(finished: CallFinished) -> bool:
    """Whether the call was refused."""
    return fault_of(finished).code == "approval_missing"


@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize("fields", [{}, {"again": True}, {"round": 1}])
async def test_a_call_without_the_approval_of_its_tool_or_of_a_rule_is_not_made(
    planner: Planner, fields: dict[str, Any]
) -> None:
    """Nor one that comes again, nor a later round. A call that no rule matches needs none."""
    name = names.outcome_of("1-0", fields.get("round", 0))
    for tool_name, rules in (("give_away", []), ("transfer", [RULE])):
        run = await planner.request(tool_name, {"amount": 100}, approval_rules=rules, **fields)
        assert is_missing(await planner.outcome(run, name))
    assert paid == []
    run = await planner.request("transfer", {"amount": 99}, approval_rules=[RULE], **fields)
    assert (await planner.outcome(run, name)).observation == "paid"


@pytest.mark.usefixtures("runner")
async def test_an_approval_is_of_one_call_with_its_arguments(planner: Planner) -> None:
    """Of another run, other arguments or an older revision it is none."""
    spec = await planner.spec("give_away")
    run, other = await planner.open_run(), await planner.open_run()
    right = approval(run, spec, 100, revision=2)
    wrong = [
        approval(other, spec, 100),
        approval(run, spec, 1),
        right.model_copy(update={"revision": 1}),
        CallApproval(digest=""),
    ]
    for number, given in enumerate(wrong):
        request = {"run": run, "call_id": f"2-{number}", "approval": given}
        assert is_missing(await planner.call("give_away", {"amount": 100}, **request))
    assert is_missing(await planner.call("give_away", {"amount": 101}, run=other, approval=right))
    assert paid == []
    assert (await planner.call("give_away", {"amount": 100}, run=run, approval=right)).observation == "given"


@pytest.mark.usefixtures("runner")
async def test_a_direct_call_without_an_approval_is_not_made(direct: Direct) -> None:
    """Its reply is the outcome, and the tool did not begin."""
    kind, outcome = await direct.call(await direct.message("give_away", amount=7))
    assert (kind, direct.has_begun) == ("finished", False)
    assert is_missing(CallFinished.model_validate_json(outcome))
    assert paid == []


@pytest.mark.parametrize("amount", [float("nan"), float("inf")])
def test_arguments_without_canonical_json_are_approved_by_nobody(amount: float) -> None:
    """No digest can name them."""
    call = call_requested("pay", args={"amount": amount}, approval=CallApproval(digest=""))
    with pytest.raises(ApprovalMissing):
        check_approval(call, [ToolSpec(name="pay", requires_approval=True)])
