"""No path to a tool leads past an approval: tool_runner checks each call again, whatever its planner has checked."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from contracts.runs.inbox import CallFinished
from contracts.runs.pauses import ApprovalRule, CallApproval
from contracts.tools.messages import DIRECT_HEADER, CallRequested, RunnerAnnouncement, ToolSpec
from contracts.wire import names, subjects
from contracts.wire.names import unix_ms
from runwire import tool
from services.messaging.connection import Bus
from services.shared.tools.approvals import call_digest
from services.tool_runner.app import running
from services.tool_runner.errors import ApprovalMissing
from services.tool_runner.execution import check_approval
from services.tool_runner.settings import ToolRunnerSettings
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

from .conftest import Planner, Serve, Start

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
    return finished.failure is not None and finished.failure.code == "approval_missing"


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


@pytest.fixture
async def instance(server: NatsServer, serve_tools: Serve) -> AsyncIterator[str]:
    """The instance of a tool runner that takes direct calls."""
    serve_tools(give_away)
    settings = ToolRunnerSettings(nats_url=server.url, discover_s=0.3, graceful_timeout_s=0.1, trust_tools=True)
    instances: list[RunnerAnnouncement] = []
    async with connected(server.url, "listener") as bus:

        async def on_announcement(message: Any) -> None:
            instances.append(RunnerAnnouncement.model_validate_json(message.data))

        await bus.subscribe(subjects.runner(), on_announcement)
        async with connected(server.url, "tool_runner", settings) as own, running(own, settings, []):
            await wait_until(lambda: instances and not instances[-1].leaving, what="the instance takes direct calls")
            yield instances[-1].instance


async def test_a_direct_call_without_an_approval_is_not_made(planner: Planner, instance: str) -> None:
    """Its reply is the outcome, and the tool did not begin."""
    spec, run = await planner.spec("give_away"), await planner.open_run()
    call = CallRequested(
        call_id="1-0",
        run_id=run,
        tenant="default",
        tool="give_away",
        args={"amount": 7},
        spec=spec.digest(),
        step=1,
        start_by=unix_ms() + 5000,
    )
    reply = await planner.bus.request(subjects.direct_call(instance), call.model_dump_json().encode(), wait_s=5)
    assert (reply.headers or {})[DIRECT_HEADER] == "finished"
    assert is_missing(CallFinished.model_validate_json(reply.data))
    assert paid == []


@pytest.mark.parametrize("amount", [float("nan"), float("inf")])
def test_arguments_without_canonical_json_are_approved_by_nobody(amount: float) -> None:
    """No digest can name them."""
    call = CallRequested(
        call_id="1-0",
        run_id="0" * 32,
        tenant="default",
        tool="pay",
        args={"amount": amount},
        spec="0" * 24,
        step=1,
        approval=CallApproval(digest=""),
    )
    with pytest.raises(ApprovalMissing):
        check_approval(call, [ToolSpec(name="pay", requires_approval=True)])
