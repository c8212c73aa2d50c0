"""A tool runner over a real server, and a client that sends calls as the planner does."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.artifacts import ArtifactRef
from contracts.runs.events import CallStarted, Cancelled, RunEvent, RunStarted
from contracts.runs.inbox import CallFinished
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunLimits, RunRequested
from contracts.tools import messages
from contracts.wire import keys, names, subjects
from contracts.wire.faults import Fault
from contracts.wire.names import new_id, unix_ms
from contracts.wire.records import EVENTS_HEADER, Record
from runwire.serving import serve
from runwire.tools import Tool
from services.messaging.connection import Bus
from services.messaging.streams import consumer, ensure_consumer
from services.shared.tools.catalogue import Catalogue
from services.tool_runner import call_consumers, handlers
from services.tool_runner.app import running
from services.tool_runner.discovery.announcements import Announcement
from services.tool_runner.settings import ToolRunnerSettings
from services.tool_runner.transports.mcp.config import McpServer
from tests.support.buses import connected, provisioned_server
from tests.support.catalogue import key_subject
from tests.support.forked import Forked
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stores import Store, serving
from tests.support.waiting import wait_until

handlers._LEAVING_S, call_consumers._ANNOUNCE_EVERY_S = 0.01, 0.1
"""Hundreds of tests start and stop a tool runner that nobody sends a call meanwhile."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server with all streams, for the tests of one file; they use names of their own."""
    with provisioned_server(tmp_path_factory.mktemp("nats")) as found:
        yield found


@pytest.fixture
async def store(rclone: S3Server, server: NatsServer) -> AsyncIterator[Store]:
    async with serving(rclone, server.url) as found:
        found.tenant = "default"
        yield found


def call_requested(tool: str, **fields: Any) -> messages.CallRequested:
    """A call as a planner requests it."""
    known = {"call_id": "1-0", "run_id": "0" * 32, "tenant": "default", "args": {}, "spec": "0" * 24, "step": 1}
    return messages.CallRequested.model_validate({**known, "tool": tool, **fields})


def fault_of(finished: CallFinished) -> Fault:
    """Why a call has failed."""
    assert finished.failure is not None, finished
    return finished.failure


def named_of(finished: CallFinished) -> tuple[messages.RespondedArtifact, ArtifactRef]:
    """What an outcome says of its artifact with a key, and where that is stored."""
    assert finished.responded is not None, finished
    assert finished.responded.ref is not None, finished
    return finished.responded, finished.responded.ref


def replying(client: Client, *replies: bytes | tuple[str, bytes]) -> Callable[[Msg], Awaitable[None]]:
    """A tool without an SDK, which sends these replies to each call: results, or the kind of a reply and its body."""

    async def on_call(message: Msg) -> None:
        for each in replies:
            kind, body = ("result", each) if isinstance(each, bytes) else each
            await client.publish(message.reply, body, headers={messages.REPLY_HEADER: kind})

    return on_call


class Planner:
    """Speaks to the tool runner as the planner does: opens runs, requests calls, reads outcomes."""

    def __init__(self, bus: Bus, catalogue: Catalogue) -> None:
        self.bus = bus
        self.catalogue = catalogue

    async def open_run(self) -> str:
        """Write the first record of a run and return its id."""
        run = new_id()
        request = RunRequested(run_id=run, tenant="default", requested_at=0, trace_id=run, query="?")
        await self.append(run, RunStarted(run_id=run, tenant="default", request=request, limits=RunLimits()))
        return run

    async def append(self, run: str, *events: RunEvent) -> None:
        """Append a record to a run's log."""
        record = Record(events=list(events))
        headers = {EVENTS_HEADER: record.types()}
        await self.bus.publish_surely(
            subjects.log("default", run), record.model_dump_json().encode(), record.id, headers
        )

    async def show(self, run: str, event: RunEvent) -> None:
        """Put an event on a run's stream, as some other process does."""
        record = Record(events=[event])
        await self.bus.publish(
            subjects.stream("default", run), record.model_dump_json().encode(), {EVENTS_HEADER: record.types()}
        )

    async def end_run(self, run: str) -> None:
        """End a run."""
        await self.append(run, Cancelled(payload=FinalPayload(raw_answer="")))

    async def spec(self, tool: str) -> messages.ToolSpec:
        """Return the tool's specification once it is in the catalogue."""
        await wait_until(lambda: tool in self.catalogue.live(), what=f"{tool} is in the catalogue")
        return self.catalogue.live()[tool]

    async def request(
        self, tool: str, args: dict[str, Any], *, run: str | None = None, call_id: str = "1-0", **fields: Any
    ) -> str:
        """Request a call and return its run."""
        run = run or await self.open_run()
        spec = fields.pop("spec", None) or (await self.spec(tool)).digest()
        call = call_requested(tool, call_id=call_id, run_id=run, args=args, spec=spec, **fields)
        # A planner sends a call again only once the stream has forgotten the first message id.
        key = names.round_key(run, call_id, call.round)
        message_id = f"{key}.{time.monotonic_ns()}" if call.again else key
        await self.bus.publish_surely(subjects.call("default", run, tool), call.model_dump_json().encode(), message_id)
        return run

    async def outcome(self, run: str, call_id: str = "1-0", wait_s: float = 15) -> CallFinished:
        """Return the outcome of a call once it is there."""

        async def found() -> bytes:
            return await self.inbox(run, call_id)

        return CallFinished.model_validate_json(
            await wait_until(found, timeout=wait_s, what="the call has its outcome")
        )

    async def inbox(self, run: str, call_id: str = "1-0") -> bytes:
        """Return the outcome as it is stored; empty when there is none."""
        message = await self.bus.last(subjects.INBOX, subjects.inbox("default", run, call_id))
        return message.data if message is not None else b""

    async def call(self, tool: str, args: dict[str, Any], **fields: Any) -> CallFinished:
        """Request a call and return its outcome."""
        return await self.outcome(await self.request(tool, args, **fields), fields.get("call_id", "1-0"))

    async def shown(self, run: str) -> list[RunEvent]:
        """Return the events on the run's stream."""
        stored = await (await self.bus.reader(subjects.RUNS)).read(subjects.stream("default", run))
        return [event for _, data in stored for event in Record.model_validate_json(data).events]

    async def started(self, run: str) -> None:
        """Return once a call of a run is under way."""

        async def is_started() -> bool:
            return any(isinstance(event, CallStarted) for event in await self.shown(run))

        await wait_until(is_started, what="the call is under way")

    async def acknowledged(self, tool: str) -> None:
        """Return once all calls of a tool are acknowledged."""

        async def is_acknowledged() -> bool:
            answer = await self.bus.api(f"CONSUMER.INFO.{subjects.CALLS}.{subjects.calls_consumer(tool)}", {})
            return not answer["num_pending"] + answer["num_ack_pending"]

        await wait_until(is_acknowledged, what=f"the calls of {tool} are acknowledged")

    async def open_consumer(self, tool: str, ack_wait_s: float = 2.0) -> None:
        """Make the consumer of a tool's calls, as a tool runner does."""
        config = consumer(subjects.calls_consumer(tool), subjects.call.pattern(tool=tool), ack_wait_s)
        await ensure_consumer(self.bus, subjects.CALLS, config)

    async def dead_letters(self, stream: str) -> list[Msg]:
        """Return the dead letters of a stream."""
        return await (await self.bus.reader(subjects.DEAD)).messages(subjects.dead(stream))

    async def declare(self, spec: messages.ToolSpec) -> str:
        """Put a specification into the catalogue by hand, as if a run had pinned it; return its digest."""
        spec = messages.ToolSpec.model_validate_json(spec.model_dump_json())
        await self.bus.publish(key_subject(keys.tool_spec(spec.digest())), spec.model_dump_json().encode())
        return spec.digest()


class Direct:
    """Makes direct calls as the planner does, at the one instance that announces itself."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.instances: set[str] = set()
        self.has_begun = False
        """Whether a call was said to begin."""

    async def on_announcement(self, message: Msg) -> None:
        """Note an instance that comes or leaves."""
        announced = messages.RunnerAnnouncement.model_validate_json(message.data)
        (self.instances.discard if announced.leaving else self.instances.add)(announced.instance)

    async def instance(self) -> str:
        """The instance, once it takes direct calls."""
        await wait_until(lambda: self.instances, what="the instance takes direct calls")
        [instance] = self.instances
        return instance

    async def message(self, tool: str, *, spec: str = "", **args: Any) -> messages.CallRequested:
        """A call of a new run."""
        spec = spec or (await self.planner.spec(tool)).digest()
        fields = {"run_id": await self.planner.open_run(), "args": args, "spec": spec, "start_by": unix_ms() + 5000}
        return call_requested(tool, call_id="1-1", **fields)

    async def call(self, call: messages.CallRequested) -> tuple[str, bytes]:
        """Make it, and return what the last reply says and its body."""

        def is_begun(reply: Msg) -> bool:
            self.has_begun = self.has_begun or direct_kind(reply) == "begun"
            return direct_kind(reply) == "begun"

        subject = subjects.direct_call(await self.instance())
        reply = await self.planner.bus.request(subject, call.model_dump_json().encode(), wait_s=5, interim=is_begun)
        return direct_kind(reply), reply.data


def direct_kind(reply: Msg) -> str:
    """What a reply to a direct call says."""
    return (reply.headers or {})[messages.DIRECT_HEADER]


@pytest.fixture
async def direct(planner: Planner) -> AsyncIterator[Direct]:
    found = Direct(planner)
    subscription = await planner.bus.subscribe(subjects.runner(), found.on_announcement)
    yield found
    await subscription.stop()


@pytest.fixture
async def planner(server: NatsServer) -> AsyncIterator[Planner]:
    """The planner's side."""
    async with connected(server.url, "planner") as bus:
        catalogue = await Catalogue(bus).start()
        yield Planner(bus, catalogue)
        await catalogue.stop()


Start = Callable[..., Awaitable[Bus]]


@pytest.fixture
async def start_runner(server: NatsServer) -> AsyncIterator[Start]:
    """Starts tool runners in this process, with specifications (the tools file) and settings."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(*specs: messages.ToolSpec, servers: Sequence[McpServer] = (), **settings: Any) -> Bus:
            configured = ToolRunnerSettings(
                nats_url=server.url,
                **{"discover_s": 0.3, "graceful_timeout_s": 0.1, "settling_s": 0.5, "trust_tools": True, **settings},
            )
            bus = await stack.enter_async_context(connected(server.url, "tool_runner", configured))
            specs = tuple(messages.ToolSpec.model_validate_json(spec.model_dump_json()) for spec in specs)
            declared = [Announcement(spec, spec.digest(), "", "file") for spec in specs]
            await stack.enter_async_context(running(bus, configured, declared, servers=servers))
            return bus

        yield start


@pytest.fixture
def runner_process(server: NatsServer) -> Iterator[Forked]:
    environment = {"RUNWIRE_NATS_URL": server.url, "RUNWIRE_DISCOVER_S": "0.3", "RUNWIRE_LOG_LEVEL": "warning"}
    process = Forked("services.tool_runner.__main__:main", environment=environment)
    yield process
    process.kill()
    process.wait()


LEDGER_TOOL = """
import asyncio, os
from runwire import ToolContext, tool

def write(line):
    ledger = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{line} {os.getpid()}\\n".encode())
    os.close(ledger)

async def work(name, key, seconds, ctx):
    write(f"{name} began {key}")
    try:
        await ctx.emit_artifact(stream_id="lines", chunk="first")
        await asyncio.sleep(seconds)
        await ctx.emit_artifact(stream_id="lines", chunk="second")
    except asyncio.CancelledError:
        write(f"{name} cancelled {key}")
        raise
    write(f"{name} done {key}")
    return key

@tool(idempotent=True, name="safe_" + os.environ["SUFFIX"])
async def safe(seconds: float, ctx: ToolContext) -> str:
    return await work("safe", ctx.idempotency_key, seconds, ctx)

@tool(name="unsafe_" + os.environ["SUFFIX"], side_effects="write")
async def unsafe(seconds: float, ctx: ToolContext) -> str:
    return await work("unsafe", ctx.idempotency_key, seconds, ctx)
"""


class Ledger:
    """Processes of tools that record calls in a file: `safe_<suffix>` is idempotent, `unsafe_<suffix>` is not."""

    def __init__(self, folder: Path, url: str) -> None:
        self.suffix = new_id()[-8:]
        self.url = url
        self.file = folder / "ledger"
        self.file.touch()
        self.tools = folder / "ledger_tools.py"
        self.tools.write_text(LEDGER_TOOL)
        self.processes: list[Forked] = []

    def start(self) -> Forked:
        """Start one more instance."""
        environment = {"LEDGER": str(self.file), "SUFFIX": self.suffix}
        process = Forked("runwire.serving:main", [str(self.tools)], self.url, environment=environment)
        self.processes.append(process)
        return process

    def lines(self, word: str = "") -> list[str]:
        """Return the lines of the file, or those that contain a word."""
        return [line for line in self.file.read_text().splitlines() if word in line]

    async def wrote(self, word: str, times: int = 1) -> None:
        """Return once the file contains a word so often."""
        await wait_until(lambda: len(self.lines(word)) >= times, what=f"{word} was written {times} times")

    def stop(self) -> None:
        """Kill all instances."""
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def ledger(server: NatsServer, tmp_path: Path) -> Iterator[Ledger]:
    found = Ledger(tmp_path, server.url)
    yield found
    found.stop()


Serve = Callable[..., asyncio.Event]


@pytest.fixture
async def serve_tools(server: NatsServer) -> AsyncIterator[Serve]:
    """Serves tools in this process, until the event is set that it returns, or the test ends."""
    serving: dict[asyncio.Event, asyncio.Task[None]] = {}

    def start(*tools: Tool[..., Any]) -> asyncio.Event:
        stop = asyncio.Event()
        serving[stop] = asyncio.create_task(serve(tools, server.url, stop=stop, grace_s=0.1))
        return stop

    yield start
    for stop in serving:
        stop.set()
    await asyncio.gather(*serving.values())


@pytest.fixture
async def client(server: NatsServer) -> AsyncIterator[Client]:
    """A plain NATS client, for tools without an SDK."""
    async with await nats.connect(server.url) as found:
        yield found
