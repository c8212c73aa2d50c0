"""Liveness, readiness and metrics of a service over HTTP (`/livez`, `/readyz`, `/metrics`); a watchdog of its loop.

The watchdog logs what blocks the event loop, and ends the process after too long: meanwhile the service answers nobody,
`/livez` included, and holds messages of others. Its supervisor restarts it.

Rule 1: time counts only while the watchdog's thread runs or the process uses CPU: a process that is suspended (SIGSTOP,
a frozen machine) is not blocked.
Rule 2: the log names functions and lines, never values.
Rule 3: code that holds the interpreter lock (a regular expression over megabytes) blocks that thread too, so the kernel
watches as well. A timer that each turn of the loop restarts ends the process after twice the limit in CPU time.
"""

import asyncio
import contextvars
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice, takewhile
from types import FrameType

import orjson
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

logger = structlog.get_logger(__name__)

TICK_S = 0.05
BLOCKED_S = 0.1
"""A longer block is logged once it is over."""
EXIT_CODE = 70
_QUIET_S = 10.0
"""Shortest time between two warnings."""
_SHOWN_FRAMES = 12
_LOOP = "asyncio.runners."


class Watchdog:
    """Watches the loop in which it is started. `exit_s`: seconds of blocking after which the process ends; 0: never."""

    def __init__(self, exit_s: float) -> None:
        self._exit_s = exit_s
        self._turns = 0
        self._thread_id = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Watch the running loop from a separate thread."""
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        if self._exit_s:
            # This handler needs no interpreter lock: it prints the stack, then lets the signal end the process.
            faulthandler.register(signal.SIGVTALRM, all_threads=False, chain=True)
        self._turn()
        work = contextvars.copy_context().run
        threading.Thread(target=work, args=(self._watch,), name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _turn(self) -> None:
        if self._loop is None or self._stopped.is_set():
            return
        self._turns += 1
        if self._exit_s:
            signal.setitimer(signal.ITIMER_VIRTUAL, 2 * self._exit_s)
        self._timer = self._loop.call_later(TICK_S, self._turn)

    def _watch(self) -> None:
        turns, ticks, blocked_s, stack, quiet_until = -1, 0, 0.0, list[str](), 0.0
        at, used = time.monotonic(), time.process_time()
        while not self._stopped.wait(TICK_S):
            before, used_before = at, used
            at, used = time.monotonic(), time.process_time()
            if self._turns != turns:
                if stack and at >= quiet_until:
                    logger.warning("event_loop_blocked", ms=round(blocked_s * 1000), by=stack)
                    quiet_until = at + _QUIET_S
                turns, ticks, blocked_s, stack = self._turns, 0, 0.0, []
                continue
            ticks += 1
            blocked_s += min(at - before, 2 * TICK_S + used - used_before)
            # Ticks count, not seconds: after a late tick the loop gets a chance to run before the process is ended.
            has_to_end = 0 < self._exit_s < ticks * TICK_S
            if has_to_end or (blocked_s > BLOCKED_S and not stack):
                stack = stack_of(sys._current_frames().get(self._thread_id))  # noqa: SLF001, the documented way
            if has_to_end:
                because = "its event loop stands still"
                logger.critical("process_ended", because=because, seconds=round(blocked_s, 1), by=stack)
                sys.stderr.flush()
                os._exit(EXIT_CODE)


def stack_of(frame: FrameType | None) -> list[str]:
    """Return a thread's stack of functions, the innermost last, without the event loop's; empty while it waits."""
    frames = traceback.walk_stack(frame) if frame is not None else ()
    names = (f"{each.f_globals.get('__name__', '?')}.{each.f_code.co_qualname}:{line}" for each, line in frames)
    of_work = takewhile(lambda name: not name.startswith(_LOOP), names)
    return [*islice(of_work, _SHOWN_FRAMES)][::-1]


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
        checks = GaugeMetricFamily(
            "runwire_check",
            "1: a part that the service needs works, such as the storage of artifact_store, by check",
            labels=["check"],
        )
        for name, check in self.checks.items():
            checks.add_metric([name], check() is None)
        yield checks


async def serve_health(health: Health, host: str, port: int) -> asyncio.Server:
    """Serve `Health` for a service without other routes, one request a connection. Logs the address. Port 0: any."""

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
