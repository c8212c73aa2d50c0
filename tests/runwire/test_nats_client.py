"""The client of commands, tools and services."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from runwire.nats_client import NatsClient
from tests.support.certificates import make_certificates, tls_of_server
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port
from tests.support.waiting import wait_until


async def test_a_certificate_that_is_not_trusted_is_tried_again(tmp_path: Path) -> None:
    """The server may get another one. And the client can be closed meanwhile."""
    client, errors = NatsClient(demands_tls=True), list[Exception]()

    async def on_error(error: Exception) -> None:
        errors.append(error)

    options: dict[str, Any] = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.05, "error_cb": on_error}
    with NatsServer(tmp_path / "nats", extra=tls_of_server(make_certificates(tmp_path / "certificates"))) as server:
        connecting = asyncio.create_task(client.connect(f"tls://127.0.0.1:{server.port}", **options))
        await wait_until(lambda: len(errors) > 1, what="the certificate is refused twice")
        assert all("CERTIFICATE_VERIFY_FAILED" in str(error) for error in errors)
        connecting.cancel()
        await asyncio.wait([connecting])
        async with asyncio.timeout(5):
            await client.close()


async def test_the_end_of_a_connection_with_tls_warns_of_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Asyncio would, at each restart of the server."""
    certificates = make_certificates(tmp_path / "certificates")
    client, ended = NatsClient(demands_tls=True), asyncio.Event()

    async def on_disconnect() -> None:
        ended.set()

    trusted = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    with NatsServer(tmp_path / "nats", extra=tls_of_server(certificates)) as server:
        await client.connect(f"tls://127.0.0.1:{server.port}", tls=trusted, disconnected_cb=on_disconnect)
        server.kill()
        async with asyncio.timeout(10):
            await ended.wait()
        await client.close()
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]


@pytest.mark.filterwarnings("ignore:parameter 'timeout'")  # nats-py calls aiohttp as earlier versions wanted it.
async def test_a_client_connects_over_a_websocket(tmp_path: Path) -> None:
    """The library for that is imported then, and not before."""
    port = free_port()
    client, websocket = NatsClient(), f'websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}'
    with NatsServer(tmp_path / "nats", extra=websocket):
        await client.connect(f"ws://127.0.0.1:{port}")
        await client.flush()
        await client.close()


async def test_a_reconnect_that_fails_behind_its_handshake_leaves_nothing_open(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the server dies once more. The next attempt has a connection of its own."""
    client, writers = NatsClient(), list[asyncio.StreamWriter]()
    flush = client.flush

    async def fail_once(timeout: int = 10) -> None:
        writers.append(client._transport._io_writer)  # type: ignore[union-attr]
        if len(writers) == 1:
            raise OSError
        await flush(timeout)

    await client.connect(own_nats_server.url, max_reconnect_attempts=-1, reconnect_time_wait=0)
    try:
        monkeypatch.setattr(client, "flush", fail_once)
        own_nats_server.kill()
        own_nats_server.start()
        await wait_until(lambda: len(writers) > 1 and client.is_connected, what="the second attempt succeeds")
        assert [writer.is_closing() for writer in writers] == [True, False]
    finally:
        await client.close()
