"""Functions run beside the loop that serves: on a loop of their own, or in threads."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from runwire import Tool, ToolError, tool
from runwire.serving.executor import Executor
from runwire.testing import RecordingContext
from tests.support.waiting import wait_until

SEEN = contextvars.ContextVar("SEEN", default="nothing")


@pytest.fixture
def executor() -> Iterator[Executor]:
    found = Executor()
    yield found
    found.close()


async def result(executor: Executor, called: Tool[..., Any]) -> bytes | BaseException:
    """Run a tool without arguments."""
    return await asyncio.wait_for(executor.start(called, {}, RecordingContext()).outcome, 5)


async def test_coroutines_share_a_loop_which_is_not_this_one(executor: Executor) -> None:
    """So they may share a client."""

    @tool
    async def loop() -> int:
        return id(asyncio.get_running_loop())

    found = await asyncio.gather(*(result(executor, loop) for _ in range(5)))
    assert len(set(found)) == 1
    assert int(found[0].decode() if isinstance(found[0], bytes) else 0) != id(asyncio.get_running_loop())


async def test_threads_are_used_again_and_context_is_not(executor: Executor) -> None:
    """What a function binds is not seen by the next call in its thread."""
    threads: list[int] = []

    @tool
    def bind() -> str:
        threads.append(threading.get_ident())
        before = SEEN.get()
        SEEN.set("the other call")
        return before

    for _ in range(20):
        assert await result(executor, bind) == b'"nothing"'
    assert len(set(threads)) < 20


async def test_a_coroutine_that_is_stopped_at_once_is_not_started(executor: Executor) -> None:
    """The other loop has not been woken yet."""
    began = threading.Event()

    @tool
    async def late() -> None:
        began.set()

    @tool
    async def next_call() -> None:
        pass

    execution = executor.start(late, {}, RecordingContext())
    execution.stop(ToolError("enough"))
    await result(executor, next_call)
    assert not began.is_set()
    assert str(await execution.outcome) == "enough"


async def test_a_coroutine_that_blocks_the_others_is_named(
    executor: Executor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once."""
    monkeypatch.setattr("runwire.serving.executor._BLOCKED_S", 0.2)
    go = threading.Event()

    @tool
    async def careless() -> bool:
        return go.wait(20)

    execution = executor.start(careless, {}, RecordingContext())
    await asyncio.sleep(0)
    executor.watch()

    def is_named() -> bool:
        executor.watch()
        return "careless blocks all coroutines" in caplog.text

    await wait_until(is_named, what="it is named")
    executor.watch()
    go.set()
    assert await execution.outcome == b"true"
    assert caplog.text.count("blocks all") == 1
