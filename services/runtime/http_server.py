"""Serve HTTP in front of a service: its own routes beside /livez and /readyz, on one port.

Rule 1: HTTP is answered from the start, NATS or not: `/livez` shows that the process lives, everything else says 503.
Rule 2: told to stop, it ends what would hold it up (`Health.on_stop`) before it waits for open requests.
Rule 3: a service that cannot begin its work ends with that error instead of answering 503 for ever.
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
    """One listening socket for a service and the HTTP application in front of it."""

    def __init__(self, link: Link, health: Health, work: Work, http: AsgiApp, *, host: str, port: int, connections: Any = "h11") -> None:
        """Compose the service around `work`; nothing connects and nothing listens before `serve`.

        `connections`: uvicorn's protocol for a connection, or what makes one in its place.
        """
        service: AsgiFastStream = build_service(link, work, health, serves_first=True)
        self._service: Any = service
        self._http = http
        self.health = health
        self.settings = link.settings
        self._own = {path for path, _ in service.routes}
        self.failure: BaseException | None = None
        """Why the work could not begin, or broke down as a whole."""
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
        """Where it listens, once started."""
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
        """Listen, and say where."""
        await super().startup(sockets)
        if self.started:
            logger.info("http_served", host=self.config.host, port=self.port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is open, then stop."""
        self.health.stop()
        await super().shutdown(sockets)


def run_with_http(server: HttpServer) -> None:
    """Run a service with HTTP in front of it until SIGTERM or SIGINT. Raises what kept its work from beginning."""
    server.health.watchdog = Watchdog(server.settings.stall_exit_s)
    uvloop.run(server.serve())
    if server.failure is not None:
        raise server.failure
