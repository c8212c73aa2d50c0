"""A second transport is a class, a discovery and a line: its calls pass the same machine, results and artifacts."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from contracts.artifacts import BytesGiven
from contracts.tools.messages import CallQuestion, ResultRejected, ToolCall, ToolFailure, ToolSpec
from services.messaging.connection import Bus
from services.tool_runner import app
from services.tool_runner.app import Kind
from services.tool_runner.calls import events
from services.tool_runner.discovery.announcements import Announcement
from services.tool_runner.settings import ToolRunnerSettings
from services.tool_runner.transports.base import EventQueue
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner, Start, fault_of

Function = Callable[[ToolCall], Awaitable[object]]


def spec_of(name: str) -> ToolSpec:
    spec = ToolSpec(name=name, description="of this process", idempotent=True, timeout_s=10)
    return ToolSpec.model_validate_json(spec.model_dump_json())


class Functions:
    """The transport and its discovery: tools are functions of this process."""

    def __init__(self, changed: asyncio.Event, tools: dict[str, Function]) -> None:
        self.tools = tools
        self.running: dict[str, asyncio.Task[None]] = {}
        """Idempotency key -> the function that runs for the call."""
        self.connected_since: float | None = 0.0
        self._changed = changed

    async def start(self) -> None:
        """All tools are here at once."""
        self._changed.set()

    async def stop(self) -> None:
        for running in self.running.values():
            running.cancel()

    def announcements(self) -> list[Announcement]:
        specs = [spec_of(name) for name in self.tools]
        return [Announcement(spec, spec.digest(), "1.0.0", "here") for spec in specs]

    def refused(self) -> dict[str, str]:
        """All of them can be used."""
        return {}

    def ended(self) -> set[str]:
        return set()

    async def tell_offered(self, tool: str, instance: str) -> None:
        """They do not mind."""

    def serves(self, spec: ToolSpec) -> bool:
        """Only its own tools."""
        return spec.name in self.tools

    @contextmanager
    def connect(self, spec: ToolSpec, queue: EventQueue) -> Iterator["Functions.Connection"]:
        """Until the context ends, its function puts events into the queue."""
        yield Functions.Connection(self, self.tools[spec.name], queue)

    async def reject(self, tool: str, rejected: ResultRejected) -> None:
        """Nobody reads why."""

    class Connection:
        """Runs the function of one call."""

        def __init__(self, functions: "Functions", function: Function, queue: EventQueue) -> None:
            self._functions, self._function, self._queue = functions, function, queue

        async def send(self, request: int, call: ToolCall) -> bool:
            async def run() -> None:
                self._queue.put(events.Heartbeat(1.0, "here"))
                try:
                    body = json.dumps(await self._function(call)).encode()
                except ValueError as error:
                    self._queue.put(events.Failure(ToolFailure(reason=str(error))))
                else:
                    self._queue.put(events.Result(request, body), len(body))

            self._functions.running[call.idempotency_key] = asyncio.create_task(run())
            return True

        async def ask_status(self, request: int, question: CallQuestion) -> None:
            """Nothing works on a call that has been lost."""
            if question.idempotency_key not in self._functions.running:
                self._queue.put(events.NoResponders(request))

        async def ping(self, request: int, instance: str) -> None:
            """It is in this process, so it is there."""

        async def give(self, given: BytesGiven, data: bytes) -> None:
            """Its functions ask for none."""

        async def cancel(self, question: CallQuestion) -> None:
            if (running := self._functions.running.get(question.idempotency_key)) is not None:
                running.cancel()


@pytest.fixture
async def functions(monkeypatch: pytest.MonkeyPatch, start_runner: Start) -> Functions:
    """A tool runner with the second transport, which is one more line."""
    found: list[Functions] = []

    async def double(call: ToolCall) -> object:
        return {"doubled": 2 * call.args["number"]}

    async def fails(call: ToolCall) -> object:
        raise ValueError(f"no {call.args['what']}")

    async def waits(_call: ToolCall) -> object:
        await asyncio.Event().wait()
        return None

    def kind(_bus: Bus, _settings: ToolRunnerSettings, changed: asyncio.Event) -> Kind:
        tools: dict[str, Function] = {"double": double, "fails": fails, "waits": waits}
        found.append(Functions(changed, tools))
        return Kind(found[0], found[0])

    monkeypatch.setattr(app, "KINDS", [kind, *app.KINDS])
    await start_runner(ToolSpec(name="of_nats", idempotent=True), unavailable_s=0.5)
    return found[0]


async def test_its_calls_have_outcomes_like_all_others(planner: Planner, functions: Functions) -> None:
    """Announced, checked, called; and a failure is the tool's own. NATS serves what it does not."""
    finished = await planner.call("double", {"number": 21})
    assert (finished.status, finished.observation) == ("succeeded", {"doubled": 42})
    fault = fault_of(await planner.call("fails", {"what": "paper"}))
    assert (fault.code, fault.reason) == ("tool_error", "no paper")
    running = {**functions.running}
    assert fault_of(await planner.call("of_nats", {})).code == "tool_unavailable"
    assert functions.running == running


async def test_the_end_of_a_run_cancels_its_function(planner: Planner, functions: Functions) -> None:
    """By the machine's command."""
    run = await planner.request("waits", {})
    await wait_until(lambda: functions.running, what="the function runs")
    (running,) = functions.running.values()
    await planner.end_run(run)
    await wait_until(running.cancelled, what="it is cancelled")
