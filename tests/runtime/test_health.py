"""A service without other routes answers `/livez`, `/readyz` and `/metrics`, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx
import pytest

from services.runtime.health import Health, serve_health


@pytest.fixture
async def served() -> AsyncIterator[tuple[Health, httpx.AsyncClient]]:
    health = Health("any", list)
    async with await serve_health(health, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            yield health, http


async def test_a_service_is_alive_before_it_is_ready(served: tuple[Health, httpx.AsyncClient]) -> None:
    """And says why it is not ready."""
    health, http = served
    assert (await http.get("/livez")).json() == {"status": "alive", "service": "any"}
    early = await http.get("/readyz?verbose")
    assert (early.status_code, early.json()["problems"]) == (503, ["still starting"])
    health.started = True
    assert (await http.get("/readyz")).status_code == 200
    assert (await http.head("/readyz")).text == ""


async def test_metrics_say_what_readiness_says(served: tuple[Health, httpx.AsyncClient]) -> None:
    """And what the process counts, in Prometheus' text format."""
    health, http = served
    health.checks["storage"] = lambda: "it is full"
    answer = await http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    lines = answer.text.splitlines()
    assert {"runwire_ready 0.0", "runwire_nats_connected 1.0", 'runwire_check{check="storage"} 0.0'} <= set(lines)
    assert any(line.startswith("process_open_fds ") for line in lines)


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("POST", "/livez"), ("GET", "/livez/x")])
async def test_nothing_else_is_found(method: str, path: str, served: tuple[Health, httpx.AsyncClient]) -> None:
    """Neither another path nor another method."""
    assert (await served[1].request(method, path)).status_code == 404


@pytest.mark.parametrize("sent", [b"", b"GET /livez", b"x" * 20_000, b"\xff\r\n\r\n"])
async def test_what_is_no_request_ends_its_own_connection_alone(
    sent: bytes, served: tuple[Health, httpx.AsyncClient]
) -> None:
    """Half a request, one that is too long, one that is none."""
    http = served[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", http.base_url.port)
    writer.write(sent)
    writer.write_eof()
    with suppress(OSError):
        assert b" 200 " not in await reader.read()
    writer.close()
    assert (await http.get("/livez")).status_code == 200
