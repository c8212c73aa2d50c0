"""A file that shows that a process serves its tools, for the health check of a container."""

import asyncio
from collections.abc import Callable
from pathlib import Path

_INTERVAL_S = 2.0


async def keep_health_file(file: Path, works: Callable[[], bool]) -> None:
    """Touch the file every two seconds while `works`, remove it otherwise and at the end.

    A process that is stopped or killed leaves it behind: then it gets old.
    """
    try:
        while True:
            _show(file, works=works())
            await asyncio.sleep(_INTERVAL_S)
    finally:
        _show(file, works=False)


def _show(file: Path, *, works: bool) -> None:
    if works:
        file.touch()
    else:
        file.unlink(missing_ok=True)
