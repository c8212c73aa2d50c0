"""The supervisor's child processes: restarts, reports, and when a start fails."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.wire.operation import EXIT_WRONG_SETTINGS
from runwire.local import supervisor
from runwire.local.supervisor import CannotLaunch, Child, Supervisor, restart_pause_s
from services.runtime.health import EXIT_CODE
from tests.support.checkout import ROOT
from tests.support.waiting import wait_until


def _child(code: str, *, ready: bool | None = None) -> Child:
    return Child("worker", [sys.executable, "-c", code], ready=None if ready is None else lambda: ready)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder, with what an earlier start has left in the log."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker.log").write_text("an old line\n")
    return tmp_path


@pytest.fixture
def reports() -> list[str]:
    """What the supervisor reports."""
    return []


@pytest.fixture
async def processes(data: Path, reports: list[str]) -> AsyncIterator[Supervisor]:
    """A supervisor, which is stopped at the end."""
    made = Supervisor(data, reports.append)
    yield made
    await made.stop()


async def test_a_start_fails_with_the_last_line_of_a_process_that_keeps_exiting(
    processes: Supervisor, reports: list[str]
) -> None:
    """At once, not after a minute, and with the reason in the error."""
    exiting = _child(
        "import sys; sys.exit('RUNWIRE_X: is [/wrong]\\nApplication startup failed. Exiting.')", ready=False
    )
    with pytest.raises(
        CannotLaunch, match=r"worker did not become ready: RUNWIRE_X: is \[/wrong\] \(see .*worker\.log\)"
    ):
        async with asyncio.timeout(30):
            await processes.start(exiting)
    assert "ended with code 1: RUNWIRE_X" in reports[0]
    assert "2 times by now" in reports[1]


async def test_a_wrong_configuration_ends_the_start_at_once(processes: Supervisor, reports: list[str]) -> None:
    """Another start would end the same way, so there is none."""
    code = f"import sys; sys.stderr.write('wrong settings: RUNWIRE_X: is wrong'); sys.exit({EXIT_WRONG_SETTINGS})"
    child = _child(code)
    await processes.start(child)
    async with asyncio.timeout(30):
        assert await processes.refused() == "worker cannot start: wrong settings: RUNWIRE_X: is wrong"
    assert (child.restarts, reports) == (0, [])


async def test_a_killed_process_is_restarted_at_once(
    processes: Supervisor, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first restarts have no pause: with pauses of minutes it would not be back within the limit."""
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 600.0)
    monkeypatch.setattr(supervisor, "_MAX_PAUSE_S", 600.0)
    child = _child("import time; time.sleep(600)")
    await processes.start(child)
    for times in (1, 2, 3):
        killed = child.process
        assert killed is not None
        (child if times == 1 else killed).kill()
        again = lambda: child.restarts == times and child.process is not killed  # noqa: B023, E731
        await wait_until(again, timeout=30, what="it runs again")
        assert len(reports) == times // 2  # A kill of the launcher's own is none, the third is not told.


ANSWERING = """
import os, socket
assert (os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"]) == (str(os.getpid()), "1")
with socket.socket(fileno=3) as listening:
    while True:
        with listening.accept()[0] as connection:
            connection.sendall(b"%d" % os.getpid())
"""


async def test_a_process_with_a_socket_is_started_by_the_first_connection(processes: Supervisor) -> None:
    """Whoever connects, also while none runs after a kill, is answered by the next one."""

    async def answer() -> int:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        async with asyncio.timeout(30):
            pid = int(await reader.read())
        writer.close()
        await writer.wait_closed()
        return pid

    listening = socket.create_server(("127.0.0.1", 0))
    child = Child("worker", [sys.executable, "-c", ANSWERING], listening=listening)
    await processes.start(child)
    assert child.process is None
    first = await answer()
    assert child.process is not None
    child.kill()
    await wait_until(lambda: child.restarts == 1, timeout=30, what="its end is noticed")
    assert await answer() != first
    await processes.stop()
    assert listening.fileno() == -1


def test_the_pause_grows_up_to_a_limit() -> None:
    """A process that cannot run neither occupies the processor nor waits for ever."""
    assert [restart_pause_s(deaths) for deaths in (1, 2, 3)] == [0, 0, 0]
    assert all(0.2 * 2**n <= restart_pause_s(4 + n) <= 0.4 * 2**n for n in range(4))
    assert 7 <= restart_pause_s(1000) <= 13


BLOCKED = """
import asyncio, sys, time
from services.runtime.health import Watchdog

async def main():
    Watchdog(0.3).start()
    await asyncio.sleep(0.2)
    time.sleep(3600)

asyncio.run(main())
"""


async def test_a_service_that_hangs_ends_by_its_watchdog_and_is_started_again(
    processes: Supervisor, reports: list[str]
) -> None:
    """The supervisor asks nobody whether it works; the report names the exit code."""
    service = Child("service", [sys.executable, "-c", BLOCKED], {**os.environ, "PYTHONPATH": str(ROOT)})
    await processes.start(service)
    first = service.process
    await wait_until(lambda: service.restarts and service.process is not first, timeout=30, what="it runs again")
    assert reports[0].startswith(f"service ended with code {EXIT_CODE}")
