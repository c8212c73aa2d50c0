"""Liveness, readiness and metrics of a service over HTTP: `/livez`, `/readyz` and `/metrics`."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

import orjson
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from .watchdog import Watchdog

logger = structlog.get_logger(__name__)

VERSION = "0.1.0"
_MAX_HEAD_BYTES = 8192
_REQUEST_TIMEOUT_S = 5.0


@dataclass(eq=False)
class Health:
    """The state behind `/readyz`. `checks`: name -> a function that returns a problem as a sentence, or None."""

    name: str
    """The name of the service."""
    link_problems: Callable[[], list[str]]
    """Returns the problems of the connection to NATS, as sentences."""
    link_warnings: Callable[[], list[str]] = list
    """Returns what an operator should mend although the service works, as sentences."""
    started: bool = False
    checks: dict[str, Callable[[], str | None]] = field(default_factory=dict)
    watchdog: Watchdog | None = None
    """Watches the event loop from the start of the work to its end; None where the service does not own the loop,
    as in tests."""
    on_stop: list[Callable[[], None]] = field(default_factory=list)
    """Functions to call when the service has to stop, before it waits for open requests."""

    def stop(self) -> None:
        """Take no further work: the service is stopping."""
        self.started = False
        for end in self.on_stop:
            end()

    def problems(self) -> list[str]:
        """Return why the service is not ready, as sentences; empty when it is."""
        found = [] if self.started else ["still starting"]
        found += self.link_problems()
        found += [f"{name}: {problem}" for name, check in self.checks.items() if (problem := check())]
        return found

    def answer(self, path: str) -> tuple[int, object] | None:
        """Return HTTP status and body of `/livez`, `/readyz` or a page of the service; None for another path.

        `/livez` is 200 as long as the event loop runs. `/readyz` is 200 when work can be taken, else 503 with the
        reasons. `warnings` name what should be mended although the service works.
        """
        if path == "/livez":
            return 200, {"status": "alive", "service": self.name}
        if path != "/readyz":
            return None
        problems = self.problems()
        status = "not ready" if problems else "ready"
        return 503 if problems else 200, {"status": status, "problems": problems, "warnings": self.link_warnings()}

    def metrics(self) -> bytes:
        """Return all metrics of this process, in Prometheus' text format."""
        own = CollectorRegistry()
        own.register(self)
        return generate_latest(own) + generate_latest(REGISTRY)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield what `/readyz` says, as Prometheus' collectors do."""
        yield GaugeMetricFamily("runwire_ready", "1: the service takes work", value=not self.problems())
        yield GaugeMetricFamily("runwire_warnings", "What /readyz warns of", value=len(self.link_warnings()))
        yield GaugeMetricFamily("runwire_nats_connected", "1: connected to NATS", value=not self.link_problems())
        checks = GaugeMetricFamily("runwire_check", "1: a part that the service needs works", labels=["check"])
        for name, check in self.checks.items():
            checks.add_metric([name], check() is None)
        yield checks


async def serve_health(health: Health, host: str, port: int) -> asyncio.Server:
    """Serve what `Health` answers for a service without other routes, and log the address. Port 0: any free one.

    A connection carries one request.
    """

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                writer.write(_response(health, await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # A client that sends no request gets no answer.
        finally:
            writer.close()

    server = await asyncio.start_server(on_connection, host, port, limit=_MAX_HEAD_BYTES)
    logger.info("http_served", host=host, port=server.sockets[0].getsockname()[1])
    return server


def _response(health: Health, head: bytes) -> bytes:
    method, _, rest = head.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if method in {"GET", "HEAD"} and path == "/metrics":
        status, content, content_type = 200, health.metrics(), CONTENT_TYPE_LATEST
    else:
        found = health.answer(path) if method in {"GET", "HEAD"} else None
        status, body = found or (404, {"status": "not found"})
        content, content_type = orjson.dumps(body), "application/json"
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"content-type: {content_type}",
        f"content-length: {len(content)}",
        "cache-control: no-store",
        "connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else content)
