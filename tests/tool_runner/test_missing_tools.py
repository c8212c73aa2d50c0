"""Calls of tools that do not answer in time, start late, or are not there."""

from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.runs.events import CallStarted
from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from contracts.wire.faults import Fault
from tests.support.waiting import wait_until

from .conftest import Planner, Start


async def test_a_tool_that_starts_a_little_late_is_waited_for(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """A rolling restart is no failure. Nobody received the request, so any call may be sent again."""
    await start_runner(ToolSpec(name="latecomer"))
    run = await planner.request("latecomer", {})

    async def is_started() -> bool:
        return any(isinstance(event, CallStarted) for event in await planner.shown(run))

    await wait_until(is_started, what="the call is under way")

    async def on_call(message: Msg) -> None:
        await message.respond(b"1")

    await client.subscribe("tool.latecomer", "latecomer", cb=on_call)

    assert (await planner.outcome(run)).observation == 1


async def test_a_tool_that_starts_after_the_call_was_settled_is_not_called(
    planner: Planner, start_runner: Start, client: Client
) -> None:
    """Another tool runner found no instance that holds the call, and settled it a moment ago."""
    await start_runner(ToolSpec(name="settled"))
    run = await planner.request("settled", {})

    async def is_started() -> bool:
        return any(isinstance(event, CallStarted) for event in await planner.shown(run))

    await wait_until(is_started, what="the call is under way")
    settled = CallFinished(
        call_id="1-0", tool="settled", status="failed", failure=Fault(code="outcome_unknown", reason="lost")
    )
    await planner.bus.publish(
        subjects.inbox("default", run, "1-0"), settled.model_dump_json().encode(), {"Nats-Msg-Id": f"{run}.1-0"}
    )
    requests = await client.subscribe(subjects.tool("settled"))

    async def is_acknowledged() -> bool:
        return await planner.open_calls("settled") == 0

    await wait_until(is_acknowledged, what="the call is acknowledged")
    assert requests.pending_msgs == 0
