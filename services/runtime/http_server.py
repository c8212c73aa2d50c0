"""Serve HTTP for a service: its own routes, /livez and /readyz on one port.

Rule 1: HTTP is served from the start, even without NATS: `/livez` shows that the process is alive, everything else
returns 503.
Rule 2: on shutdown, long responses are ended (`Health.on_stop`) before open requests are awaited.
Rule 3: a service that cannot start its work ends with that error instead of returning 503 for ever.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
import structlog
import uvicorn
import uvloop

from services.runtime.health import Health, Watchdog
from services.runtime.service import Link, Service, Work
from services.runtime.tasks import cancelled

logger = structlog.get_logger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class HttpServer(uvicorn.Server):
    """One listening socket for a service and its HTTP application."""

    def __init__(
        self,
        link: Link,
        health: Health,
        work: Work,
        http: AsgiApp,
        *,
        host: str,
        port: int,
        keep_alive_s: int,
        connections: Any,
        guard: Callable[[AsgiApp], AsgiApp],
    ) -> None:
        """Compose the service around `work`; nothing connects or listens before `serve`.

        `connections`: uvicorn's protocol for a connection, or a factory of one.
        `guard`: wraps everything that answers, `/livez` and `/readyz` included.
        """
        self._service = Service(link, work, health)
        self._starting: asyncio.Task[None] | None = None
        self._http = http
        self.health = health
        self.settings = link.settings
        self.failure: BaseException | None = None
        """Why the work could not start."""
        super().__init__(
            uvicorn.Config(
                guard(self._answer),
                host=host,
                port=port,
                log_level=logging.WARNING,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                interface="asgi3",
                http=connections,
                ws="none",
                lifespan="off",
                timeout_keep_alive=keep_alive_s,
                timeout_graceful_shutdown=max(1, round(link.settings.graceful_timeout_s)),
            )
        )

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.health.answer(scope["path"])
        if answer is None:
            # The protocol leaves the body out. A stream has no end that a HEAD could wait for.
            if scope["method"] == "HEAD" and not scope["path"].endswith("/events"):
                scope = {**scope, "method": "GET"}
            await self._http(scope, receive, send)
            return
        status, body = answer
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": orjson.dumps(body)})

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, log the address, and begin to start the work."""
        await super().startup(sockets)
        if self.started:
            logger.info("http_served", host=self.config.host, port=self.port)
            self._starting = asyncio.create_task(self._start_work())

    async def _start_work(self) -> None:
        try:
            await self._service.start()
        except Exception as error:  # noqa: BLE001, `run_with_http` raises it
            self.failure, self.should_exit = error, True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End long responses, then stop."""
        self.health.stop()
        await super().shutdown(sockets)
        await cancelled(self._starting)
        await self._service.stop()


def run_with_http(server: HttpServer) -> None:
    """Run a service with HTTP until SIGTERM or SIGINT. Raises the error that kept its work from starting."""
    server.health.watchdog = Watchdog(server.settings.stall_exit_s)
    uvloop.run(server.serve())
    if server.failure is not None:
        raise server.failure
