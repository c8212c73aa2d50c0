"""Whether a service lives and is ready: over HTTP (`/livez`, `/readyz`) and over NATS (`$SRV.PING`, `$SRV.STATS`)."""

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import nats.micro
import orjson
from nats.errors import Error as NatsError
from nats.micro.service import Service, ServiceConfig

from .bus import Bus
from .watchdog import Watchdog

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
VERSION = "0.1.0"


@dataclass
class Health:
    """What `/readyz` looks at. `checks` are names with a function that returns a problem in words, or None."""

    bus: Bus
    started: bool = False
    checks: dict[str, Callable[[], str | None]] = field(default_factory=dict)
    watchdog: Watchdog | None = None
    """Watches the event loop from the start of the work to its end; None where the loop is not the service's own, as in tests."""
    on_stop: list[Callable[[], None]] = field(default_factory=list)
    """Called when the service is told to stop, before it waits for the requests that are open."""

    def stop(self) -> None:
        """Take no further work: the service was told to stop."""
        self.started = False
        for end in self.on_stop:
            end()

    def problems(self) -> list[str]:
        """Return why the service is not ready, in words; empty when it is."""
        found = [] if self.started else ["still starting"]
        if not self.bus.is_connected:
            found.append("NATS is not connected")
        if self.bus.denied:
            found.append(f"NATS denied a right: {self.bus.denied}")
        found += self.bus.storage.problems()
        found += self.bus.tasks.problems()
        found += [f"{name}: {problem}" for name, check in self.checks.items() if (problem := check())]
        return found

    async def livez(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """ASGI: 200 as long as the event loop turns."""
        await _respond(send, 200, {"status": "alive", "service": self.bus.name})

    async def readyz(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """ASGI: 200 when work can be taken, else 503 with the reasons."""
        problems = self.problems()
        await _respond(send, 503 if problems else 200, {"status": "not ready" if problems else "ready", "problems": problems})


async def _respond(send: Send, status: int, body: dict[str, object]) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(body)})


async def announce(bus: Bus, heard: list[str]) -> Service:
    """Make the service visible to `nats micro ls` and `$SRV.PING`; `heard`: the subjects of its requests, which FastStream serves."""
    about = {"subjects": " ".join(heard)} if heard else None
    config = ServiceConfig(name=f"runwire-{bus.name}", version=VERSION, description=f"Runwire {bus.name}", metadata=about)
    return await nats.micro.add_service(bus.nc, config)


async def withdraw(micro: Service) -> None:
    """Take the announcement back, as far as NATS is still there to be told."""
    with suppress(NatsError, ConnectionError, OSError):
        await micro.stop()
