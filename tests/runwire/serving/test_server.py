"""Serving tools over NATS, as a tool runner and any NATS client sees it."""

import asyncio
import json
import signal
import threading
import time
from pathlib import Path

import pytest
from nats.aio.client import Client
from pydantic import BaseModel, Field

from contracts.tools.messages import ToolSpec
from contracts.wire.names import new_id
from runwire import ToolContext, ToolError, tool
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

from .conftest import Caller, Serve, asking, call, seen, start_process


async def test_a_tool_announces_itself_and_answers(client: Client, serving: Serve) -> None:
    """As a micro service whose endpoint has the specification, with statistics of its calls."""

    @tool(version="2.1.0", desc="Add")
    async def add(a: int, b: int) -> int:
        return a + b

    await serving(add)

    info = await seen(client, "add")
    (endpoint,) = info["endpoints"]
    assert (info["version"], endpoint["subject"], endpoint["queue_group"]) == ("2.1.0", "tool.add", "add")
    assert ToolSpec.model_validate_json(endpoint["metadata"]["runwire.spec"]) == add.spec
    assert await call(client, "add", {"a": 1, "b": 2}) == ("result", 3)
    assert (await call(client, "add", {"a": "x"}))[1]["code"] == "invalid_args"
    stats = json.loads((await client.request("$SRV.STATS.add")).data)["endpoints"][0]
    assert (stats["num_requests"], stats["num_errors"]) == (2, 1)
    assert stats["average_processing_time"] > 0


async def test_an_instance_without_the_call_does_not_answer(client: Client, serving: Serve) -> None:
    """A status request to all instances is answered by the one that has the call."""

    @tool
    async def idle() -> int:
        return 1

    await serving(idle)
    await serving(idle)
    caller = await Caller(client).start()
    await call(client, "idle", {}, key="k2")
    await caller.query("tool.idle.status", "unknown")
    await caller.query("tool.idle.status", "k2")

    await caller.end()
    assert caller.kinds() == ["result"]


async def test_calls_run_at_the_same_time_and_blocking_code_stops_no_heartbeat(client: Client, serving: Serve) -> None:
    """A request that blocks inside a coroutine is a common mistake; plain functions are meant to block."""

    @tool
    async def careless(seconds: float) -> str:
        time.sleep(seconds)  # noqa: ASYNC251, that is the mistake
        return "slept"

    @tool
    def plain(seconds: float, ctx: ToolContext) -> str:
        ctx.progress("sleeping")
        time.sleep(seconds)
        return threading.current_thread().name

    await serving(careless, plain)
    caller = await Caller(client).start()
    began = time.monotonic()
    await caller.send("careless", {"seconds": 1.3}, new_id())
    others = await asyncio.gather(*(call(client, "plain", {"seconds": 0.5}) for _ in range(4)))

    assert await caller.end() == ("result", "slept")
    assert others == [("result", "runwire-plain")] * 4
    assert caller.kinds().count("heartbeat") >= 2
    assert json.loads(caller.replies[0][1])["every_s"] == 0.5
    assert time.monotonic() - began < 3


async def test_a_function_without_a_report_fails(client: Client, serving: Serve) -> None:
    """After `timeout_s`; progress restarts it, and a coroutine is cancelled."""
    cancelled = threading.Event()

    @tool(timeout_s=0.5)
    async def drowsy(signs: int, ctx: ToolContext) -> str:
        for _ in range(signs):
            await asyncio.sleep(0.3)
            await ctx.progress("still here")
        if signs:
            return "awake"
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    await serving(drowsy)

    assert await call(client, "drowsy", {"signs": 3}) == ("result", "awake")
    kind, failure = await call(client, "drowsy", {"signs": 0})
    assert (kind, failure["code"]) == ("failure", "tool_timed_out")
    await wait_until(cancelled.is_set, what="the coroutine is cancelled")


async def test_a_cancelled_call_ends(client: Client, serving: Serve) -> None:
    """A coroutine is cancelled, a plain function can check it."""
    began = threading.Semaphore(0)

    @tool
    async def wait() -> None:
        began.release()
        await asyncio.sleep(60)

    @tool
    def look(ctx: ToolContext) -> str:
        began.release()
        while not ctx.cancelled:
            time.sleep(0.01)
        return "seen"

    await serving(wait, look)
    for name in ("wait", "look"):
        caller = await asking(client, name, {}, f"cancel-{name}")
        await wait_until(lambda: began.acquire(blocking=False), what="the call began")
        await caller.query(f"tool.{name}.cancel", f"cancel-{name}")
        assert await caller.end() == (
            "failure",
            {"reason": "the call was cancelled", "code": "cancelled", "retryable": False},
        )


async def test_nothing_is_started_too_late(client: Client, serving: Serve) -> None:
    """Neither after the deadline nor after `start_by`; and a running call ends at its deadline."""
    executed: list[float] = []

    @tool
    async def late(seconds: float) -> int:
        executed.append(seconds)
        await asyncio.sleep(seconds)
        return 1

    await serving(late)
    now = int(time.time() * 1000)

    for fields in ({"deadline_at": now - 1}, {"start_by": now - 1}):
        kind, failure = await call(client, "late", {"seconds": 0}, **fields)
        assert (kind, failure["code"], failure["retryable"]) == ("failure", "deadline_passed", True)
    for fields in ({"deadline_at": now - 1}, {"start_by": now - 1}):
        reply = await call(client, "late", {"seconds": 0}, understands_declined=True, **fields)
        assert reply == ("declined", {"reason": "late"})
    assert not executed
    kind, failure = await call(client, "late", {"seconds": 60}, deadline_at=now + 400)
    assert (kind, failure["code"]) == ("failure", "deadline_passed")


async def test_an_instance_with_enough_calls_declines_further_ones(client: Client, serving: Serve) -> None:
    """A request for a call that runs joins it. A caller that does not know the reply is served as before."""
    executed: list[str] = []
    go = asyncio.Event()

    @tool(concurrency=1)
    def full(ctx: ToolContext) -> str:
        executed.append(ctx.idempotency_key)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(10)
        return ctx.idempotency_key

    loop = asyncio.get_running_loop()
    await serving(full)
    first = await asking(client, "full", {}, "first", understands_declined=True)
    await wait_until(lambda: executed, what="the first call runs")

    assert await call(client, "full", {}, key="second", understands_declined=True) == ("declined", {"reason": "busy"})
    joined, older = [await Caller(client).start() for _ in range(2)]
    await joined.send("full", {}, "first", understands_declined=True)
    await older.send("full", {}, "older")
    await wait_until(lambda: "older" in executed, what="the call of an older caller runs")
    go.set()

    assert [(await caller.end())[1] for caller in (first, joined, older)] == ["first", "first", "older"]
    again = await call(client, "full", {}, key="second", understands_declined=True)
    assert again == ("result", "second"), "it had not been started"


async def test_values_that_a_model_refused_are_not_shown(
    client: Client, serving: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """A result that its type refuses may hold values for people only: they reach neither the caller nor the log."""

    class Plot(BaseModel):
        chart: dict[str, int] = Field(json_schema_extra={"artifact": True})

    @tool
    async def plot(points: str) -> Plot:
        return Plot(chart={"k": points})  # That is the mistake.

    await serving(plot)
    kind, failure = await call(client, "plot", {"points": "canary"})
    assert (kind, failure["code"]) == ("failure", "tool_error")
    assert failure["reason"].startswith("Plot: chart.")
    assert "test_server.py" in caplog.text, "the log names the line"
    assert "canary" not in failure["reason"] + caplog.text


async def test_a_request_that_is_no_call_gets_an_answer(client: Client, serving: Serve) -> None:
    """The author of a caller learns what is wrong."""

    @tool
    async def strict() -> int:
        return 1

    await serving(strict)
    for data in (b"", b"{", b'{"args": 3}', b"\xff"):
        answer = await client.request("tool.strict", data)
        assert json.loads(answer.data)["code"] == "bad_request"
        await client.publish("tool.strict.status", data)
        await client.publish("tool.strict.cancel", data)
    assert await call(client, "strict", {}) == ("result", 1)


class TextFails(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        return str(self.args[5])


class Timeout(BaseException):
    """No Exception, as gevent's."""


class NameFails(type):
    """The class of a class whose name cannot be read."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise LookupError


RAISED: list[tuple[BaseException, str]] = [
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt: "),
    (StopIteration(), "StopIteration: "),
    (type("Stop", (StopIteration,), {})("end of rows"), "Stop: end of rows"),
    (StopAsyncIteration(), "StopAsyncIteration: "),
    (GeneratorExit(), "GeneratorExit: "),
    (asyncio.CancelledError(), "the tool cancelled itself"),
    (Timeout("3 seconds"), "Timeout: 3 seconds"),
    (BaseExceptionGroup("two", [Timeout(), ValueError()]), "BaseExceptionGroup: two (2 sub-exceptions)"),
    (TextFails(), "TextFails, whose text cannot be made (IndexError)"),
    (type("NoText", (Exception,), {"__str__": lambda _: None})(), "NoText, whose text cannot be made (TypeError)"),
    (NameFails("NoName", (Exception,), {})("nameless"), "NoName"),
    (type("NoCode", (ToolError,), {"code": property(lambda _: 1 // 0, lambda *_: None)})("no"), "NoCode, whose text"),
    (FileNotFoundError("caf\udce9.txt"), "FileNotFoundError: caf?.txt"),
    (ToolError("cannot read caf\udce9.txt"), "cannot read caf?.txt"),
    (ToolError(KeyError("rows"), code=404), "'rows'"),  # type: ignore[arg-type]  # authors do
    (ToolError("later", code="\udce9", retryable=None), "later"),  # type: ignore[arg-type]
    (ToolError(TextFails()), "ToolError, whose text cannot be made (IndexError)"),  # type: ignore[arg-type]
]


async def test_a_call_always_ends(client: Client, serving: Serve) -> None:
    """Whatever a function raises: with the type's name and the text, if it can be made; and its place is free."""

    @tool(concurrency=1)
    async def coroutine(case: int) -> None:
        raise RAISED[case][0]

    @tool(concurrency=1)
    def plain(case: int) -> None:
        raise RAISED[case][0]

    @tool(concurrency=1)
    async def child(case: int) -> None:
        await asyncio.gather(asyncio.create_task(_raise(RAISED[case][0])))

    async def _raise(error: BaseException) -> None:
        raise error

    await serving(coroutine, plain, child)
    for name in ("coroutine", "plain", "child"):
        for case, (error, reason) in enumerate(RAISED):
            kind, failure = await call(client, name, {"case": case}, understands_declined=True)
            # Python replaces a StopIteration that leaves a coroutine.
            is_replaced = isinstance(error, StopIteration) and name != "plain"
            expected = "coroutine raised StopIteration" if is_replaced else reason
            assert (kind, expected in failure["reason"]) == ("failure", True), (name, failure)


async def test_a_large_result_is_sent_in_parts(client: Client, serving: Serve) -> None:
    """Of raw bytes, then an empty result that counts them."""

    @tool
    async def heavy() -> str:
        return "x" * (5 << 20)

    await serving(heavy)
    caller = await asking(client, "heavy", {})
    assert await caller.end() == ("result", "x" * (5 << 20))
    assert max(len(data) for kind, data in caller.replies if kind == "part") <= 1 << 20
    assert caller.replies[-1] == ("result", b"")


TOOLS = """
import asyncio, logging.config, threading, time
from helper import WORD
from runwire import ToolContext, ToolError, tool

@tool(name="linger_{suffix}")
async def linger(seconds: float, ctx: ToolContext) -> str:
    await ctx.progress("began")
    await asyncio.sleep(seconds)
    return WORD

threading.Thread(target=time.sleep, args=(3600,)).start()
logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
async def test_sigterm_lets_running_calls_end(client: Client, nats_server: NatsServer, tmp_path: Path, by: int) -> None:
    """They have ten seconds; then the process exits with code 0, whatever threads and loggers the file has."""
    suffix = new_id()[-8:]
    (tmp_path / "helper.py").write_text("WORD = 'finished'\n")
    (tmp_path / "my_tools.py").write_text(TOOLS.replace("{suffix}", suffix))
    process = start_process(tmp_path / "my_tools.py", nats_server.url)
    try:
        await seen(client, f"linger_{suffix}")
        caller = await asking(client, f"linger_{suffix}", {"seconds": 0.7}, "k")
        await wait_until(lambda: "progress" in caller.kinds(), what="the call began")

        process.send_signal(by)

        assert await caller.end() == ("result", "finished")
        assert await asyncio.to_thread(process.wait, 10) == 0
        assert f"serving linger_{suffix}" in (tmp_path / "my_tools.log").read_text()
    finally:
        process.kill()
        process.wait()
