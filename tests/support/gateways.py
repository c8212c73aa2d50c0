"""Gateways to test, in this process or as one that may be killed; and a writer of records, in place of a planner."""

import asyncio
import contextlib
import functools
import signal
import unittest.mock
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastapi.routing
import httpx
import uvicorn.server
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant
from fastapi.routing import APIRoute

from contracts.runs.events import Cancelled, Chunk, Done, Error, Paused, RunStarted, Step
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunLimits, RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.records import EVENTS_HEADER, PAUSES_HEADER, Record
from runwire.client.event_stream import ServerSentEvent, SseDecoder
from services.gateway.app import NOUNS, PROTOCOLS, build_server
from services.gateway.auth.key_lines import new_key
from services.gateway.parts import Parts
from services.gateway.runs import messages
from services.gateway.settings import GatewaySettings
from services.messaging.connection import Bus
from services.runtime.http_server import HttpServer
from services.runtime.settings import BusSettings
from services.shared.runs.waiting import waiting_after
from tests.support.buses import provisioned
from tests.support.forked import Forked
from tests.support.needs import free_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
_TICK_S = 0.005


class _QuickTicks:
    """The module asyncio for uvicorn, which sleeps for tenths of a second at its stop: hundreds of tests stop one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay_s: float) -> None:
        """Sleep for a shorter time."""
        await asyncio.sleep(min(delay_s, _TICK_S))


uvicorn.server.asyncio = _QuickTicks()  # type: ignore[assignment, attr-defined]
_dependant = functools.cache(get_dependant)


def _known_dependant(**of: Any) -> Dependant:
    """What FastAPI needs of a route's function, found out once for all gateways: it takes a third of most tests."""
    known = _dependant(**of)
    return replace(known, dependencies=[*known.dependencies])


fastapi.routing.get_dependant = _known_dependant  # type: ignore[attr-defined]


@dataclass
class Served:
    """A gateway in this process."""

    server: HttpServer
    http: httpx.AsyncClient

    @property
    def parts(self) -> Parts:
        """What its routes share."""
        parts: Parts = self.server._http.state.parts  # type: ignore[attr-defined]
        return parts

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"


def unconnected_routes() -> list[APIRoute]:
    """All routes of a gateway that does not run."""
    return [route for router in (*NOUNS, *PROTOCOLS) for route in router.routes if isinstance(route, APIRoute)]


@contextlib.asynccontextmanager
async def serving(nats_url: str, *, accept_wait_s: float = 3.0, **settings: Any) -> AsyncIterator[Served]:
    """A gateway that answers, with everything provisioned; `settings` are those of GatewaySettings.

    `accept_wait_s`: how long a write is tried before a caller gets 503.
    """
    login = {name: settings[name] for name in ("nats_user", "nats_password") if name in settings}
    async with provisioned(nats_url, settings.get("nats_user", "test"), BusSettings(nats_url=nats_url, **login)):
        pass
    with unittest.mock.patch.object(messages, "ACCEPT_WAIT_S", accept_wait_s):
        server = build_server(GatewaySettings(**{"nats_url": nats_url, "port": 0, "graceful_timeout_s": 2, **settings}))
        # Signals are pytest's.
        task = asyncio.create_task(server._serve())
        try:
            await wait_until(lambda: server.started or task.done(), what="the gateway listens")
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=20) as http:
                await wait_until(lambda: server.health.started or task.done(), what="the gateway is ready")
                yield Served(server, http)
        finally:
            server.should_exit = True
            await task


def bearer(key: str) -> dict[str, str]:
    """The header that shows an API key."""
    return {"Authorization": f"Bearer {key}"}


@contextlib.asynccontextmanager
async def serving_as(
    nats_url: str, tenant: str, options: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """A gateway with one API key, of this tenant with these options, which its client shows."""
    key, line = new_key(tenant, options)
    async with serving(nats_url, api_keys=line, **settings) as served:
        served.http.headers.update(bearer(key))
        yield served


def assert_unavailable(answer: httpx.Response) -> None:
    """Assert that the caller is to ask again."""
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0


async def requested(bus: Bus, run: str, tenant: str = "default") -> RunRequested:
    """The request of an accepted run, as a planner finds it."""
    message = await bus.last_from_leader(subjects.REQUESTS, subjects.request(tenant, run))
    assert message is not None
    return RunRequested.model_validate_json(message[1])


Heard = AsyncIterator[ServerSentEvent]


@contextlib.asynccontextmanager
async def heard(served: Served, path: str, after: str | None = None) -> AsyncIterator[tuple[httpx.Response, Heard]]:
    """An event stream behind the id `after`: the answer, and its events as they come."""
    async with served.http.stream("GET", path, headers={"Last-Event-ID": after} if after else {}) as answer:
        assert answer.status_code == 200, await answer.aread()

        async def events() -> Heard:
            decoder = SseDecoder()
            async for piece in answer.aiter_bytes():
                for event in decoder.feed(piece):
                    yield event

        yield answer, events()


class GatewayProcess:
    """A gateway as a process, on one port over all its lives."""

    def __init__(self, nats_url: str, log: Path, **environment: str) -> None:
        self.port = free_port()
        self.log = log
        self._environment = {"RUNWIRE_NATS_URL": nats_url, "RUNWIRE_PORT": str(self.port), **environment}
        self.process: Forked | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; it may not listen yet."""
        self.log.touch()
        main = "services.gateway.__main__:main"
        self.process = Forked(main, environment=self._environment, log=self.log, folder=ROOT)

    async def until_answering(self, path: str = "/readyz", status: int = 200) -> None:
        """Wait until it answers `path` with `status`."""

        async def answers() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
            try:
                async with httpx.AsyncClient() as http:
                    return (await http.get(self.url + path)).status_code == status
            except httpx.TransportError:
                return False

        await wait_until(answers, timeout=30, what=f"the gateway answers {path} with {status}")

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(by)
        code = process.wait(15)
        if code is None:
            process.kill()
            code = process.wait()
        assert code is not None
        return code


class Writer:
    """Writes a run's records as the planner does, so that there is something to read."""

    def __init__(self, bus: Bus, tenant: str = "default", run: str | None = None) -> None:
        self.bus = bus
        self.tenant = tenant
        self.run = run or new_id()
        self.stored: list[tuple[str, int, Record]] = []
        self._chunks = 0

    async def log(self, *events: Any) -> int:
        """Append one record of facts."""
        return await self._write("log", subjects.log(self.tenant, self.run), Record(events=list(events)))

    async def stream(self, *events: Any) -> int:
        """Append one record of tokens or progress."""
        return await self._write("stream", subjects.stream(self.tenant, self.run), Record(events=list(events)))

    async def _write(self, kind: str, subject: str, record: Record) -> int:
        self.stored.append((kind, 0, record))
        facts = [event for kind, _, stored in self.stored if kind == "log" for event in stored.events]
        headers = {EVENTS_HEADER: record.types()}
        if count := len(waiting_after(facts).pauses):
            headers[PAUSES_HEADER] = str(count)
        sequence = await self.bus.publish(subject, record.model_dump_json().encode(), headers)
        self.stored[-1] = kind, sequence, record
        return sequence

    async def raw(self, kind: str, data: bytes, types: str) -> int:
        """Append bytes as they are."""
        subject = (subjects.log if kind == "log" else subjects.stream)(self.tenant, self.run)
        return await self.bus.publish(subject, data, {EVENTS_HEADER: types})

    async def open(self, **request: Any) -> int:
        """The run has started."""
        return await self.log(self.started(**request))

    def started(self, **request: Any) -> RunStarted:
        """The fact that opens the run."""
        known = {
            "run_id": self.run,
            "tenant": self.tenant,
            "requested_at": 1_700_000_000_000,
            "trace_id": new_id(),
            "query": "why?",
        }
        return RunStarted(
            run_id=self.run, tenant=self.tenant, request=RunRequested(**{**known, **request}), limits=RunLimits()
        )

    async def chunk(self, text: str) -> int:
        """A piece of the answer."""
        self._chunks += 1
        return await self.stream(Chunk(seq=self._chunks - 1, text=text, action_seq=1, attempt=1))

    async def done(self, answer: str = "because") -> int:
        """The run ends well, with the end of its last step in the same record."""
        step = Step(step=1, node="final_response", status="succeeded", latency_ms=5)
        return await self.log(step, Done(raw_answer=answer, reason="answer_complete"))

    async def failed(self) -> int:
        """The run ends badly."""
        payload = FinalPayload(raw_answer="", route="error")
        return await self.log(Error(error="the model is gone", code="model_failed", trace_id="0" * 32, payload=payload))

    async def cancelled(self) -> int:
        """The run was stopped."""
        return await self.log(Cancelled(reason="enough", payload=FinalPayload(raw_answer="")))


def paused(call_id: str | None, number: int = 0, **more: Any) -> Paused:
    """A pause of a call, or of the run itself."""
    known = {"pause_id": f"{number:032x}", "call_id": call_id, "until": 2_000_000_000_000, "reason": "approval"}
    return Paused.model_validate({**known, "token": f"{number:032x}.1.{'0' * 32}", "step": 1, **more})


def frames_of(writer: Writer, after: tuple[int, int] = (0, 0)) -> list[tuple[str, str]]:
    """What a listener should get after a cursor: type and id of each event, from what was written."""
    at = {"log": 0, "stream": 0}
    expected = []
    for kind, sequence, record in writer.stored:
        at[kind] = sequence
        if sequence > after[0 if kind == "log" else 1]:
            ids = [""] * (len(record.events) - 1) + [f"{max(at['log'], after[0])}-{max(at['stream'], after[1])}"]
            expected += [(event.type, sent) for event, sent in zip(record.events, ids, strict=True)]
    return expected


async def disconnect(writer: asyncio.StreamWriter) -> None:
    """End a connection of a test's own, whatever was not sent; one that is only closed may outlive its event loop."""
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def connection(served: Served, *sent: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection of a test's own, on which these bytes were sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    try:
        for piece in sent:
            writer.write(piece)
            await writer.drain()
        yield reader, writer
    finally:
        await disconnect(writer)


@contextlib.contextmanager
def planner_process(nats_url: str, folder: Path) -> Iterator[Forked]:
    """A planner with the demo model, as a process that a test may stop. Its log is in `folder`."""
    environment = {"RUNWIRE_NATS_URL": nats_url, "RUNWIRE_MODEL": "builtin/rehearsal"}
    process = Forked("services.planner.__main__:main", environment=environment, log=folder / "planner.log")
    try:
        yield process
    finally:
        process.kill()
        process.wait()
