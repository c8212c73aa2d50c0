"""The client against a real gateway, which is stopped, killed and started again; records are written by the test."""

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from contracts.runs.events import Chunk, RunEvent, ToolProgress, UnknownEvent
from contracts.wire.names import new_id
from runwire.cli.commands.doctor import examine
from runwire.client import Client, transport
from runwire.errors import NotFound, RunwireError, Unreachable
from services.messaging.connection import Bus
from tests.support.buses import provisioned
from tests.support.certificates import make_certificates
from tests.support.gateways import GatewayProcess, Served, Writer
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port
from tests.support.waiting import wait_until


@pytest.fixture
async def client(served: Served) -> AsyncIterator[Client]:
    async with Client(served.url, patience_s=10) as made:
        yield made


def texts(events: list[RunEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Chunk)]


async def collected(client: Client, run: str, after: str | None = None) -> list[RunEvent]:
    return [event async for event in client.follow(run, after)]


async def test_errors_have_types_and_say_what_is_wrong(client: Client) -> None:
    """Codes for programs, fields for people."""
    with pytest.raises(RunwireError) as refusal:
        await client.start("x", limits={"max_steps": 0}, agnet="a")  # type: ignore[call-arg]  # that is the mistake
    error = refusal.value
    assert (error.code, error.status) == ("invalid_input", 422)
    assert {wrong["field"] for wrong in error.errors} == {"limits.max_steps", "agnet"}
    assert "limits.max_steps" in str(error)
    for run in (new_id(), "../../etc", "", "*"):
        for attempt in (client.status(run), client.cancel(run), client.result(run), collected(client, run)):
            with pytest.raises(NotFound):
                await attempt


async def test_an_unreachable_gateway() -> None:
    """Raises within `patience_s`."""
    place = f"http://127.0.0.1:{free_port()}"
    async with Client(place, patience_s=0.3) as client:
        for attempt in (client.start("x"), client.status(new_id()), collected(client, new_id())):
            with pytest.raises(Unreachable, match=f"nobody listens at {place}, tried for 0.3 s") as found:
                await attempt
            assert found.value.__suppress_context__, "the traceback is short"


async def test_a_certificate_of_an_unknown_authority_is_refused_at_once(tmp_path: Path) -> None:
    """By its host, with the setting that names the authority; `runwire doctor` says it too."""
    folder = make_certificates(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    place = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, Client(place, patience_s=60) as client:
        with pytest.raises(RunwireError, match=r"certificate of 127\.0\.0\.1 .*SSL_CERT_FILE"):
            await client.start("x")
        assert any("SSL_CERT_FILE" in check.mend for check in await examine(place, None, {}))


async def test_events_of_another_version_are_unknown_events(client: Client, bus: Bus) -> None:
    """New types, and new values in known ones."""
    writer = Writer(bus)
    await writer.open()
    await writer.raw("log", b'{"events":[{"type":"sung","note":"a"},{"type":"chunk","phase":"verse"}]}', "sung,chunk")
    await writer.done()
    events = await collected(client, writer.run)
    assert [event.type for event in events] == ["run_started", "sung", "chunk", "step", "done"]
    assert isinstance(events[1], UnknownEvent)
    assert events[1].model_extra == {"note": "a"}
    assert isinstance(events[2], UnknownEvent)


@pytest.fixture
async def gateway(own_nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    """A gateway as a process, with everything provisioned."""
    async with provisioned(own_nats_server.url):
        pass
    made = GatewayProcess(own_nats_server.url, tmp_path / "gateway.log", RUNWIRE_GRACEFUL_TIMEOUT_S="1")
    made.start()
    try:
        await made.until_answering()
        yield made
    finally:
        made.stop(signal.SIGKILL)


async def test_a_listener_survives_gateways_that_are_killed(
    gateway: GatewayProcess, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends them, and at any point of the stream: every event comes once, in order; a question is answered.

    A gateway that has answered before is being restarted, so it is waited for, however soon another one is given up.
    """
    monkeypatch.setattr(transport, "_MAX_REFUSED_S", 0.0)
    async with Client(gateway.url, patience_s=30) as client:
        writer = Writer(bus)
        await writer.open()
        events: list[RunEvent] = []

        async def listen() -> None:
            async for event in client.follow(writer.run):
                events.append(event)  # noqa: PERF401, checked meanwhile

        def has_heard(count: int) -> bool:
            return len(events) >= count

        listening = asyncio.create_task(listen())
        written = 0
        for by in (signal.SIGKILL, signal.SIGTERM):
            heard = len(events)
            for _ in range(20):
                await writer.chunk(str(written))
                written += 1
            await writer.stream(*(ToolProgress(call_id="1-1", tool="t", message=str(n)) for n in range(3)))
            await wait_until(partial(has_heard, heard + 3), what="the listener has received something")
            gateway.stop(by)
            asking = asyncio.create_task(client.start("x"))
            await writer.chunk(str(written))
            written += 1
            gateway.start()
            assert await asking
        await writer.done()
        await asyncio.wait_for(listening, 40)
        assert texts(events) == [str(number) for number in range(written)]
        assert [event.message for event in events if isinstance(event, ToolProgress)] == ["0", "1", "2"] * 2
        assert events[-1].type == "done"
