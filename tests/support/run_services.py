"""Whole runs in this process: the real planner and tool runner, a real nats-server, and the scripted provider.

`planning` is a planner that a test may ask; `tools_at_work` serves plain NATS tools for as long as a block lasts. Only
the provider and the tools are made up.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from nats.aio.msg import Msg

from contracts.runs.events import Chunk, ControlAnswered, Paused, RunEvent, Thinking
from contracts.runs.inbox import CancelRequested, InputRequested, ResumeRequested, TopUpRequested
from contracts.runs.requests import RunRequested
from contracts.tools.messages import REPLY_HEADER, ToolFailure, ToolSpec
from contracts.wire import subjects
from contracts.wire.faults import Fault
from contracts.wire.names import new_id
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.messaging.reads import sequence_of
from services.planner.agents import load_agents
from services.planner.app import build_parts, models_of, pullers
from services.planner.effects.call_paths import DirectCalls
from services.planner.handlers import Planner
from services.planner.models.by_provider import ByProvider
from services.planner.models.refusals import WithoutRefusedFields
from services.planner.settings import PlannerSettings
from services.shared.runs.run_follower import RunFollower
from services.shared.tools.catalogue import Catalogue
from services.tool_runner import handlers as runner_side
from services.tool_runner.app import running
from services.tool_runner.discovery.announcements import Announcement
from services.tool_runner.settings import ToolRunnerSettings
from tests.support.buses import connected, provisioned
from tests.support.model_server import ModelServer
from tests.support.waiting import wait_until

MODEL = "openai/scripted"
runner_side._LEAVING_S = 0.01
"""Hundreds of tests stop a tool runner that nobody sends a call meanwhile."""
Handler = Callable[[dict[str, Any]], Awaitable[Any]]
"""What a tool does with its arguments; a returned Fault is a failure, and a Replied all of its replies."""


@dataclass(frozen=True)
class Replied:
    """The replies of a tool: kind and body of each, the result last."""

    replies: list[tuple[str, bytes]]


class Told(NamedTuple):
    """A result with a text for the model beside it."""

    content: str
    result: Any


@dataclass
class Story:
    """Everything that a run's listeners saw, in the order of storage."""

    run: str
    events: list[RunEvent] = field(default_factory=list)

    @property
    def end(self) -> Any:
        """The terminal event."""
        return self.events[-1]

    def of(self, kind: str) -> list[Any]:
        """All events of a type."""
        return [event for event in self.events if event.type == kind]

    def facts(self) -> list[str]:
        """The types of all events but chunks and thoughts."""
        return [event.type for event in self.events if not isinstance(event, Chunk | Thinking)]

    def chunks(self) -> list[Chunk]:
        """The chunks of the answer's last attempt."""
        found = [event for event in self.events if isinstance(event, Chunk)]
        last = max(((chunk.action_seq, chunk.part, chunk.attempt) for chunk in found), default=None)
        return [chunk for chunk in found if (chunk.action_seq, chunk.part, chunk.attempt) == last]

    def shown(self) -> str:
        """The answer as it was streamed. Checks that it was numbered from 0 and closed once, at its end."""
        chunks = self.chunks()
        assert [chunk.seq for chunk in chunks] == list(range(len(chunks)))
        assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        text = ""
        for chunk in (event for event in self.events if isinstance(event, Chunk)):
            assert chunk.offset <= len(text), "a gap"
            text = text[: chunk.offset] + chunk.text
        assert text.endswith("".join(chunk.text for chunk in chunks))
        return text


@dataclass
class Planning:
    """A planner at work."""

    bus: Bus
    catalogue: Catalogue
    models: ByProvider
    direct_calls: DirectCalls
    planner: Planner | None = None

    async def calls_directly(self) -> None:
        """Return once a tool runner takes direct calls."""
        await wait_until(lambda: self.direct_calls.rules() is not None, what="a tool runner takes direct calls")

    async def ask(self, query: str = "What?", tenant: str = "default", run: str = "", **fields: Any) -> str:
        """Ask for a run and return its id, by default a new one."""
        run, now = run or new_id(), time.time_ns() // 1_000_000
        request = RunRequested(run_id=run, tenant=tenant, requested_at=now, trace_id=new_id(), query=query, **fields)
        await self.bus.publish(subjects.request(tenant, run), request.model_dump_json().encode(), {"Nats-Msg-Id": run})
        return run

    async def ended(self, run: str, wait_s: float = 20) -> Story:
        """Follow a run to its end."""
        return await self.until(run, lambda event: event.type in {"done", "error", "cancelled"}, wait_s)

    async def until(self, run: str, happened: Callable[[RunEvent], bool], wait_s: float = 20) -> Story:
        """Follow a run until something has happened."""
        story = Story(run)
        async with (
            asyncio.timeout(wait_s),
            contextlib.aclosing(RunFollower(self.bus, "default", run).records()) as batches,
        ):
            async for records in batches:
                for stored in records:
                    story.events += Record.model_validate_json(stored.data).events
                    if any(map(happened, story.events)):
                        return story
        return story

    async def tell(self, query: str = "What?", **fields: Any) -> Story:
        """Ask, and follow to the end."""
        return await self.ended(await self.ask(query, **fields))

    async def top_up(self, run: str, **limits: Any) -> None:
        """Let a run spend more."""
        message = TopUpRequested(id=new_id(), limits=limits)
        await self.bus.publish(
            subjects.control("default", run, f"top_up-{message.id}"), message.model_dump_json().encode()
        )

    async def cancel(self, run: str) -> None:
        """Ask for the end of a run."""
        body = CancelRequested(reason="enough").model_dump_json().encode()
        await self.bus.publish(subjects.control("default", run, f"cancel-{new_id()[:8]}"), body)

    async def decide(self, pause: Paused, run: str, decision: str, **fields: Any) -> ControlAnswered:
        """Decide about a pause, and return the answer."""
        given = {"id": new_id(), "pause_id": pause.pause_id, "token": pause.token, "decision": decision, **fields}
        return await self._control(run, ResumeRequested.model_validate(given))

    async def add(self, run: str, text: str, **fields: Any) -> ControlAnswered:
        """Add an input to a run, and return the answer."""
        return await self._control(run, InputRequested.model_validate({"id": new_id(), "text": text, **fields}))

    async def _control(self, run: str, request: ResumeRequested | InputRequested) -> ControlAnswered:
        before = await self.bus.last(subjects.RUNS, subjects.stream("default", run))
        await self.bus.publish(
            subjects.control("default", run, f"{request.kind}-{new_id()[:8]}"), request.model_dump_json().encode()
        )

        async def answers() -> list[ControlAnswered]:
            reader = await self.bus.reader(subjects.RUNS)
            start = sequence_of(before) + 1 if before is not None else 1
            stored = await reader.messages(subjects.stream("default", run), start)
            events = [event for message in stored for event in Record.model_validate_json(message.data).events]
            return [event for event in events if isinstance(event, ControlAnswered) and event.id == request.id]

        return (await wait_until(answers, what=f"the {request.kind} is answered"))[-1]

    async def paused(self, run: str, count: int = 1) -> list[Paused]:
        """Follow a run until it has opened so many pauses, and return them."""
        found: list[Paused] = []

        def has_all(event: RunEvent) -> bool:
            if isinstance(event, Paused) and event not in found:
                found.append(event)
            return len(found) >= count

        await self.until(run, has_all)
        return found[:count]

    async def knows(self, *specs: ToolSpec) -> None:
        """Return once the planner's catalogue has these tools."""

        def all_there() -> bool:
            live = self.catalogue.live()
            return all(spec.name in live and live[spec.name].digest() == spec.digest() for spec in specs)

        await wait_until(all_there, what="the planner knows the tools")


@contextlib.asynccontextmanager
async def planning(
    url: str,
    server: ModelServer,
    *,
    agents: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    direct: bool = False,
    **settings: Any,
) -> AsyncIterator[Planning]:
    """A planner whose models are the scripted provider's; pauses between retries are short.

    `agents` need a `folder` for their file. `direct`: it makes direct calls, once a tool runner has announced itself.
    """
    if agents is not None and folder is not None:
        settings["agents_file"] = folder / f"{new_id()}.json"
        settings["agents_file"].write_text(json.dumps(agents))
    chosen = PlannerSettings(nats_url=url, **settings)
    models = models_of(chosen.model_copy(update={"model_api_base": server.url}), {})
    async with provisioned(url, "planner", chosen) as bus:
        catalogue = await Catalogue(bus).start()
        direct_calls = DirectCalls(bus, max_waiting=1000)
        if direct:
            await direct_calls.start()
        agents, model = load_agents(chosen.agents_file), WithoutRefusedFields(models)
        parts = build_parts(bus, chosen, agents, model, chosen.model or MODEL, catalogue, direct_calls)
        planner = Planner(replace(parts, rules=replace(parts.rules, first_pause_s=0.01)))
        lanes = [await lane.start() for lane in pullers(bus, planner, chosen)]
        try:
            yield Planning(bus, catalogue, models, direct_calls, planner)
        finally:
            await asyncio.gather(*(lane.stop(0.5) for lane in lanes))
            await catalogue.stop()
            await models.aclose()


@contextlib.asynccontextmanager
async def tools_at_work(
    planning: Planning, url: str, tools: Mapping[str, tuple[ToolSpec, Handler | None]]
) -> AsyncIterator[None]:
    """Plain NATS tools and a tool runner that knows them; the planner's catalogue has them when this begins.

    Nobody serves a tool without a handler.
    """
    specs = [ToolSpec.model_validate_json(spec.model_dump_json()) for spec, _ in tools.values()]
    settings = ToolRunnerSettings(nats_url=url, discover_s=0.2, settling_s=0.2, graceful_timeout_s=0.1)
    async with connected(url, "tools") as tools_bus, connected(url, "tool_runner", settings) as bus:
        for spec, handler in tools.values():
            if handler is not None:
                await tools_bus.nc.subscribe(subjects.tool(spec.name), queue=spec.name, cb=_answering(handler))
        await tools_bus.barrier()
        async with running(bus, settings, [Announcement(spec, spec.digest(), "", "file") for spec in specs]):
            await planning.knows(*specs)
            yield


def _answering(handler: Handler) -> Callable[[Msg], Awaitable[None]]:
    working: set[asyncio.Task[None]] = set()

    async def answer(message: Msg) -> None:
        result = await handler(json.loads(message.data)["args"])
        if isinstance(result, Fault):
            own = {"code": result.tool_code or result.code, "reason": result.reason, "retryable": result.retryable}
            body = ToolFailure.model_validate(own).model_dump_json().encode()
            await _respond(message, body, "failure")
        elif isinstance(result, Replied):
            for kind, body in result.replies:
                await _respond(message, body, kind)
        else:
            if isinstance(result, Told):
                await _respond(message, result.content.encode(), "content")
                result = result.result
            await _respond(message, json.dumps(result).encode(), "result")

    async def hear(message: Msg) -> None:
        task = asyncio.create_task(answer(message))
        working.add(task)
        task.add_done_callback(working.discard)

    return hear


async def _respond(message: Msg, body: bytes, kind: str) -> None:
    # nats-py's own `respond` takes no headers.
    await message._client.publish(message.reply, body, headers={REPLY_HEADER: kind})
