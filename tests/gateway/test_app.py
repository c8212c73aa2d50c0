"""The gateway as a process: what it does before NATS is there, with a wrong NATS, and how it stops."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import nats
import pytest

from contracts.wire.operation import EXIT_WRONG_SETTINGS
from tests.support.buses import provisioned
from tests.support.gateways import GatewayProcess, Writer
from tests.support.nats_server import NatsServer
from tests.support.stack import provision
from tests.support.waiting import wait_until

STOPPED = (0, -signal.SIGTERM)
"""uvicorn stops in good order and then dies of the signal, so that its parent can see the reason."""


@pytest.fixture
def gateway(own_nats_server: NatsServer, tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway that has not been started."""
    process = GatewayProcess(own_nats_server.url, tmp_path / "gateway.log", RUNWIRE_GRACEFUL_TIMEOUT_S="3")
    yield process
    process.stop(signal.SIGKILL)


async def test_it_lives_before_nats_does(own_nats_server: NatsServer, gateway: GatewayProcess) -> None:
    """/livez from the start, /readyz once NATS and its streams are there; a signal meanwhile stops it."""
    own_nats_server.stop()
    gateway.start()
    await gateway.until_answering("/livez")
    await gateway.until_answering("/readyz", 503)
    await gateway.until_answering("/v1/runs", 503)
    assert gateway.stop() in STOPPED
    gateway.start()
    await gateway.until_answering("/livez")
    own_nats_server.start()
    await wait_until(lambda: "provisioning_awaited" in gateway.log.read_text(), what="it says what it waits for")
    await gateway.until_answering("/readyz", 503)
    await asyncio.to_thread(provision, own_nats_server.url)
    await gateway.until_answering("/readyz")
    await gateway.until_answering("/v1/runs")
    assert gateway.stop() in STOPPED


async def test_it_does_not_work_with_a_stream_of_another_kind(
    own_nats_server: NatsServer, gateway: GatewayProcess
) -> None:
    """It waits for the provisioner, and readiness says what is wrong."""
    await asyncio.to_thread(provision, own_nats_server.url)
    client = await nats.connect(own_nats_server.url)
    await client.jetstream().delete_stream("REQUESTS")
    await client.jetstream().add_stream(name="REQUESTS", subjects=["request.*.*"], storage="memory")
    await client.close()
    gateway.start()
    await wait_until(lambda: "provisioning_awaited" in gateway.log.read_text(), what="it says what it waits for")
    async with httpx.AsyncClient() as http:
        answer = await http.get(gateway.url + "/readyz")
    assert answer.status_code == 503
    assert "stream REQUESTS: storage is 'memory', needs 'file'" in answer.text
    assert gateway.stop() in STOPPED


async def test_a_port_that_is_taken_ends_it(
    own_nats_server: NatsServer, gateway: GatewayProcess, tmp_path: Path
) -> None:
    """Two gateways never share one by accident."""
    gateway.start()
    await gateway.until_answering("/livez")
    second = GatewayProcess(own_nats_server.url, tmp_path / "second.log")
    second.port = gateway.port
    second._environment["RUNWIRE_PORT"] = str(gateway.port)
    second.start()
    assert second.process is not None
    assert await asyncio.to_thread(second.process.wait, 20) not in {None, *STOPPED}
    assert "address already in use" in second.log.read_text()


async def test_open_streams_do_not_hold_up_its_end(own_nats_server: NatsServer, gateway: GatewayProcess) -> None:
    """They end in good order, well before the time for work in flight is over."""
    async with provisioned(own_nats_server.url) as bus:
        writer = Writer(bus)
        await writer.open()
        gateway.start()
        await gateway.until_answering()
        async with (
            httpx.AsyncClient() as http,
            http.stream("GET", f"{gateway.url}/v1/runs/{writer.run}/events") as answer,
        ):
            pieces = answer.aiter_bytes()
            await anext(pieces)
            stopping = asyncio.create_task(asyncio.to_thread(gateway.stop))
            async for _ in pieces:
                pass
        assert await stopping in STOPPED
    assert "timeout graceful shutdown exceeded" not in gateway.log.read_text()


async def test_a_request_that_outlasts_its_end_is_to_be_repeated(
    own_nats_server: NatsServer, gateway: GatewayProcess
) -> None:
    """Its body was still on the way when the time for work in flight was over."""
    async with provisioned(own_nats_server.url):
        gateway.start()
        await gateway.until_answering()
    host, port = gateway.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{")
    await asyncio.sleep(0.2)  # Until it is being read.
    assert await asyncio.to_thread(gateway.stop) in STOPPED
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 2" in answer.lower()
    assert b"The gateway is stopping" in answer


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("HOST", "0.0.0.0", "RUNWIRE_HOST is 0.0.0.0, "),
        ("CORS_ORIGINS", "*", "RUNWIRE_CORS_ORIGINS names '*', which is a pattern: name each origin in full, such as "),
    ],
)
def test_a_wrong_setting_ends_it_with_one_sentence(setting: str, value: str, said: str, tmp_path: Path) -> None:
    """No traceback, and the exit code that says that a restart does not help."""
    gateway = GatewayProcess("nats://127.0.0.1:1", tmp_path / "gateway.log", **{f"RUNWIRE_{setting}": value})
    gateway.start()
    assert gateway.process is not None
    assert gateway.process.wait(30) == EXIT_WRONG_SETTINGS
    assert gateway.log.read_text().startswith(said)
    assert gateway.log.read_text().count("\n") == 1
