"""Planners that kill themselves, each a process of its own (`tests.planner.dying_planner` says when).

They are forked from a process that has imported everything, which takes a second and a half of a processor otherwise.
"""

import asyncio
import multiprocessing
import signal
from typing import Any

_MODULE = "tests.planner.dying_planner"
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([_MODULE])
_DEATH_TIMEOUT_S = 60


class DyingPlanner:
    """A planner that is at work now. The arguments are those of the module, and settings of the planner."""

    def __init__(self, url: str, model_url: str, text: str, *moment: str, **settings: Any) -> None:
        arguments = (url, model_url, text, *moment)
        self._process = _FORKS.Process(target=_plan, args=arguments, kwargs=settings, daemon=True)
        self._process.start()

    async def dead(self) -> None:
        """Return once it has killed itself. Fails, and ends it, if it does not in time."""
        try:
            await asyncio.to_thread(self._process.join, _DEATH_TIMEOUT_S)
            assert self._process.exitcode == -signal.SIGKILL
        finally:
            self._process.kill()
            self._process.join()
            self._process.close()


def _plan(url: str, model_url: str, text: str, *moment: str, **settings: Any) -> None:
    from tests.planner import dying_planner  # noqa: PLC0415, the tests themselves need none of its imports

    asyncio.run(dying_planner.main(url, model_url, text.encode(), *moment, **settings))
