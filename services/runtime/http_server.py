"""Serve HTTP for a service: its own routes, /livez and /readyz on one port.

Rule 1: HTTP is served from the start, even without NATS: `/livez` shows that the process is alive, everything else
returns 503.
Rule 2: on shutdown, long responses are ended (`Health.on_stop`) before open requests are awaited.
Rule 3: a service that cannot start its work ends with that error instead of returning 503 for ever.
"""

import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import uvicorn
import uvloop
from faststream.asgi import AsgiFastStream

from services.runtime.health import Health, Receive, Scope, Send
from services.runtime.service import Link, Work, build_service
from services.runtime.watchdog import Watchdog

logger = structlog.get_logger(__name__)

AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class HttpServer(uvicorn.Server):
    """One listening socket for a service and its HTTP application."""

    def __init__(
        self, link: Link, health: Health, work: Work, http: AsgiApp, *, host: str, port: int, connections: Any = "h11"
    ) -> None:
        """Compose the service around `work`; nothing connects or listens before `serve`.

        `connections`: uvicorn's protocol for a connection, or a factory of one.
        """
        service: AsgiFastStream = build_service(link, work, health, serves_first=True)
        self._service: Any = service
        self._http = http
        self.health = health
        self.settings = link.settings
        self._own = {path for path, _ in service.routes}
        self.failure: BaseException | None = None
        """Why the work could not start, or failed as a whole."""
        super().__init__(
            uvicorn.Config(
                self._answer,
                host=host,
                port=port,
                log_level=logging.WARNING,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                interface="asgi3",
                http=connections,
                ws="none",
                lifespan="on",
                timeout_graceful_shutdown=max(1, round(link.settings.graceful_timeout_s)),
            )
        )

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._service(scope, receive, send)
            except BaseException as error:
                self.failure, self.should_exit = error, True
                raise
        elif scope["type"] == "http" and scope["path"] in self._own:
            await self._service(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and log the address."""
        await super().startup(sockets)
        if self.started:
            logger.info("http_served", host=self.config.host, port=self.port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End long responses, then stop."""
        self.health.stop()
        await super().shutdown(sockets)


def run_with_http(server: HttpServer) -> None:
    """Run a service with HTTP until SIGTERM or SIGINT. Raises the error that kept its work from starting."""
    server.health.watchdog = Watchdog(server.settings.stall_exit_s)
    uvloop.run(server.serve())
    if server.failure is not None:
        raise server.failure
