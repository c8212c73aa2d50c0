"""Direct calls: an instance of tool_runner is called by a request, and says what became of the call."""

import asyncio
import threading

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.runs.inbox import CallFinished, CallPaused
from contracts.tools import messages
from contracts.wire import subjects
from contracts.wire.names import unix_ms
from runwire import tool
from services.messaging.connection import Bus
from services.tool_runner import call_consumers, handlers
from services.tool_runner.app import running
from services.tool_runner.settings import ToolRunnerSettings
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

from .conftest import Direct, Ledger, Planner, Serve, Start, call_requested, direct_kind

pytestmark = pytest.mark.usefixtures("runner")


async def was_received(direct: Direct, key: str, age_s: float = 0.0) -> bool:
    """Ask whether a call was received."""
    question = messages.ReceivedQuestion(idempotency_key=key, age_s=age_s).model_dump_json().encode()
    reply = await direct.planner.bus.request(subjects.direct_status(await direct.instance()), question)
    return messages.ReceivedAnswer.model_validate_json(reply.data).received


async def store(direct: Direct, call: messages.CallRequested) -> None:
    """Send it through CALLS, as a planner does that takes the run over: as a call that may have begun."""
    stored = call.model_copy(update={"again": True, "start_by": None})
    await direct.planner.bus.publish_surely(
        subjects.call("default", call.run_id, call.tool), stored.model_dump_json().encode(), f"{call.run_id}.1-1"
    )


@pytest.fixture
async def runner(start_runner: Start, monkeypatch: pytest.MonkeyPatch) -> Bus:
    monkeypatch.setattr(call_consumers, "_CHECK_INTERVAL_S", 0.3)  # Calls of a tool that nobody announces are found.
    return await start_runner()


async def test_a_short_call_is_answered_at_once(direct: Direct, ledger: Ledger) -> None:
    """Nothing is stored for it; a planner that takes the run over is told that it was received."""
    ledger.start()
    call = await direct.message(f"unsafe_{ledger.suffix}", seconds=0)
    kind, outcome = await direct.call(call)
    assert (direct.has_begun, kind) == (True, "finished")
    assert CallFinished.model_validate_json(outcome).status == "succeeded"
    assert await was_received(direct, f"{call.run_id}.1-1")
    assert [event.type for event in await direct.planner.shown(call.run_id)] == ["artifact_chunk"] * 2
    assert not await direct.planner.inbox(call.run_id, "1-1")
    await store(direct, call)
    assert (await direct.planner.outcome(call.run_id, "1-1")).status == "succeeded"
    assert len(ledger.lines("began")) == 1


async def test_a_long_call_goes_on_and_comes_back_through_calls(direct: Direct, ledger: Ledger) -> None:
    """It is not made a second time, although its tool is not idempotent."""
    ledger.start()
    call = await direct.message(f"unsafe_{ledger.suffix}", seconds=1.5)
    assert (await direct.call(call))[0] == "unfinished"
    await store(direct, call)
    assert (await direct.planner.outcome(call.run_id, "1-1")).status == "succeeded"
    assert len(ledger.lines("began")) == 1


async def test_a_call_that_was_not_received_is_refused_from_then_on(direct: Direct, ledger: Ledger) -> None:
    """So the answer stays true, however late the call comes. What is asked too late counts as received."""
    ledger.start()
    call = await direct.message(f"unsafe_{ledger.suffix}", seconds=0)
    assert not await was_received(direct, f"{call.run_id}.1-1")
    assert (await direct.call(call))[0] == "declined"
    assert not await was_received(direct, f"{call.run_id}.1-1")
    assert await was_received(direct, "another", age_s=61)
    assert not ledger.lines("began")


async def test_the_limit_of_a_tool_holds_over_both_paths(direct: Direct, serve_tools: Serve, planner: Planner) -> None:
    """A direct call is declined while a stored one runs; a stored one waits for a direct one."""
    running = most = 0
    go_on = threading.Event()

    @tool(name="only_one", concurrency=1)
    async def only_one(seconds: float) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.to_thread(go_on.wait)  # The function has an event loop of its own.
        running -= 1
        return seconds

    serve_tools(only_one)
    first = await planner.request("only_one", {"seconds": 1})
    await wait_until(lambda: running == 1, what="the stored call runs")
    call = await direct.message("only_one", seconds=2)
    assert (await direct.call(call))[0] == "declined"
    go_on.set()
    await planner.outcome(first)
    go_on.clear()
    waiting = asyncio.create_task(direct.call(await direct.message("only_one", seconds=3)))
    await wait_until(lambda: running == 1, what="the direct call runs")
    second = await planner.request("only_one", {"seconds": 4})
    assert (await waiting)[0] == "unfinished"
    assert not await planner.inbox(second)
    go_on.set()
    await planner.outcome(second)
    assert most == 1


async def test_an_instance_that_stops_declines_what_planners_still_send(
    direct: Direct, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have not read yet that it leaves. Such a call has certainly not begun."""
    monkeypatch.setattr(handlers, "_LEAVING_S", 1.0)
    bus, settings = direct.planner.bus, ToolRunnerSettings(nats_url=server.url, graceful_timeout_s=0.1)
    others = {await direct.instance()}
    body = call_requested("x", start_by=unix_ms() + 60_000).model_dump_json().encode()
    async with connected(server.url, "tool_runner", settings) as own:
        async with running(own, settings, []):
            await wait_until(lambda: direct.instances > others, what="the instance takes direct calls")
            [instance] = direct.instances - others
            replies: list[asyncio.Task[Msg]] = []

            async def on_announcement(message: Msg) -> None:
                if messages.RunnerAnnouncement.model_validate_json(message.data).leaving:
                    replies.append(asyncio.create_task(bus.request(subjects.direct_call(instance), body)))

            await bus.subscribe(subjects.runner(), on_announcement)
            await bus.barrier()
        assert direct_kind(await replies[-1]) == "declined"


async def test_a_pause_ends_a_direct_call_and_reaches_the_run_through_its_inbox(direct: Direct, client: Client) -> None:
    """The planner sends the call through CALLS, as any that is unfinished; the tool is not called for that."""
    calls: list[bytes] = []

    async def ask(message: Msg) -> None:
        calls.append(message.data)
        await client.publish(
            message.reply, b'{"number": 0, "title": "Which seat?"}', headers={messages.REPLY_HEADER: "pause"}
        )

    await client.subscribe("tool.seats", "seats", cb=ask)
    planner = direct.planner
    spec = await planner.declare(messages.ToolSpec(name="seats"))
    call = await direct.message("seats", spec=spec)
    assert (await direct.call(call))[0] == "unfinished"
    await store(direct, call)
    body = await wait_until(lambda: planner.inbox(call.run_id, "1-1-p0"), what="the pause is in the inbox")
    assert CallPaused.model_validate_json(body).title == "Which seat?"
    assert len(calls) == 1
    assert await was_received(direct, f"{call.run_id}.1-1")
    assert not await was_received(direct, f"{call.run_id}.1-1~1")
