"""Liveness and readiness of a service over HTTP: `/livez` and `/readyz`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .watchdog import Watchdog

VERSION = "0.1.0"


@dataclass
class Health:
    """The state behind `/readyz`. `checks`: name -> a function that returns a problem as a sentence, or None."""

    name: str
    """The name of the service."""
    link_problems: Callable[[], list[str]]
    """Returns the problems of the connection to NATS, as sentences."""
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

    def answer(self, path: str) -> tuple[int, dict[str, object]] | None:
        """Return HTTP status and body of `/livez` or `/readyz`; None for another path.

        `/livez` is 200 as long as the event loop runs. `/readyz` is 200 when work can be taken, else 503 with the
        reasons.
        """
        if path == "/livez":
            return 200, {"status": "alive", "service": self.name}
        if path != "/readyz":
            return None
        problems = self.problems()
        return 503 if problems else 200, {"status": "not ready" if problems else "ready", "problems": problems}
