"""Planners that kill themselves, each a process of its own (`tests.planner.dying_planner` says when)."""

import asyncio
import signal
from typing import Any

from .forked import Forked

_DEATH_TIMEOUT_S = 60


class DyingPlanner:
    """A planner that is at work now. The arguments are those of the module, and settings of the planner."""

    def __init__(
        self,
        url: str,
        model_url: str,
        text: str,
        *moment: str,
        program: str = "tests.planner.dying_planner:run",
        **settings: Any,
    ) -> None:
        self._process = Forked(program, url, model_url, text.encode(), *moment, **settings)

    async def dead(self) -> None:
        """Return once it has killed itself. Fails, and ends it, if it does not in time."""
        try:
            assert await asyncio.to_thread(self._process.wait, _DEATH_TIMEOUT_S) == -signal.SIGKILL
        finally:
            self._process.kill()
            self._process.wait()
