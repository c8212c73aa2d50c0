"""Costly checks: in a process that ends with its parent, within a limit of CPU time."""

import asyncio
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from services.runtime.check_worker import CheckTooCostly, run_check


def count_for_ever() -> None:
    """Take CPU time until the kernel ends it."""
    while True:
        pass


async def test_a_check_that_takes_too_long_is_ended_and_the_next_one_runs() -> None:
    """Errors come back as they are."""
    first = await asyncio.to_thread(run_check, os.getpid)
    assert first not in {os.getpid(), os.getppid()}
    with pytest.raises(CheckTooCostly, match="CPU"):
        await asyncio.to_thread(run_check, count_for_ever)
    assert await asyncio.to_thread(run_check, os.getpid) != first
    with pytest.raises(CheckTooCostly, match="twice, with 3"):
        await asyncio.to_thread(run_check, partial(os._exit, 3))
    os.kill(await asyncio.to_thread(run_check, os.getpid), signal.SIGKILL)
    with pytest.raises(ValueError, match="invalid literal"):
        await asyncio.to_thread(run_check, partial(int, "x"))


def test_the_process_ends_with_its_parent() -> None:
    """Also when that is killed."""
    program = (
        "import os, time\n"
        "from services.runtime.check_worker import run_check\n"
        "if __name__ == '__main__':\n"
        "    print(run_check(os.getpid), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) != parent.pid
        parent.kill()
        assert not parent.communicate(timeout=60)[0]  # Both have closed their end.


def test_nothing_is_left_at_the_end_of_its_parent() -> None:
    """Python would warn of a process that is still running, and of its open pipes."""
    program = "import os; from services.runtime.check_worker import run_check; print(run_check(os.getpid))"
    ended = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(ended.stdout), 0)
