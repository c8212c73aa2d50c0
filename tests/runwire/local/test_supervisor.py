"""The launcher's children: what is said of one that dies, and when it is given up."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from runwire.local import supervisor
from runwire.local.launch import is_ready
from runwire.local.liveness import of_service
from runwire.local.supervisor import CannotLaunch, Child, Launcher, pause_s
from tests.support.needs import free_port
from tests.support.waiting import wait_until


def _child(code: str, *, ready: bool | None = None) -> Child:
    return Child("worker", [sys.executable, "-c", code], ready=None if ready is None else lambda: ready)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder, with what an earlier start has left in the log."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker.log").write_text("an old line\n")
    return tmp_path


async def test_one_that_dies_before_it_is_ready_is_given_up_soon_with_its_last_words(data: Path) -> None:
    """Nobody waits a minute for what cannot come, and the reason is not in a file only."""
    reports: list[str] = []
    launcher = Launcher(data, reports.append)
    dying = _child("import sys; sys.exit('RUNWIRE_X: is [/wrong]\\nApplication startup failed. Exiting.')", ready=False)
    with pytest.raises(CannotLaunch, match=r"worker did not get ready: RUNWIRE_X: is \[/wrong\] \(see .*worker\.log\)"):
        async with asyncio.timeout(30):
            await launcher.start(dying)
    await launcher.stop()
    assert "ended with code 1: RUNWIRE_X" in reports[0]
    assert "2 times by now" in reports[1]


async def test_one_that_goes_on_dying_is_reported_ever_more_rarely(data: Path) -> None:
    """The terminal is not filled by it; what an earlier start wrote is not told again."""
    reports: list[str] = []
    launcher = Launcher(data, reports.append)
    silent = _child("")
    await launcher.start(silent)
    await wait_until(lambda: silent.restarts >= 3, timeout=30, what="it has died three times")
    await launcher.stop()
    assert len(reports) == 2
    assert "an old line" not in "".join(reports)


async def test_of_one_that_was_killed_the_signal_is_named(data: Path) -> None:
    """Its last line has nothing to do with its end, and is not told as if it had."""
    reports: list[str] = []
    launcher = Launcher(data, reports.append)
    child = _child("import time; print('all is well', flush=True); time.sleep(600)")
    await launcher.start(child)
    await wait_until(
        lambda: "all is well" in (data / "logs" / "worker.log").read_text(), timeout=30, what="it has written"
    )
    assert child.process is not None
    child.process.kill()
    await wait_until(lambda: bool(reports), timeout=30, what="its end is reported")
    await launcher.stop()
    assert reports[0].startswith("worker was ended by SIGKILL; starting it again")


async def test_one_that_is_killed_is_there_again_at_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first times nobody waits for a pause: with pauses of minutes it would not be back within the limit."""
    monkeypatch.setattr(supervisor, "_PAUSE_S", 600.0)
    monkeypatch.setattr(supervisor, "_MAX_PAUSE_S", 600.0)
    launcher = Launcher(data, lambda _text: None)
    child = _child("import time; time.sleep(600)")
    await launcher.start(child)
    for times in (1, 2, 3):
        killed = child.process
        assert killed is not None
        killed.kill()
        again = lambda: child.restarts == times and child.process is not killed  # noqa: B023, E731
        await wait_until(again, timeout=30, what="it is there again")
    await launcher.stop()


def test_the_pause_grows_and_has_an_end() -> None:
    """A child that cannot live takes neither the processor nor for ever to be tried again."""
    assert [pause_s(deaths) for deaths in (1, 2, 3)] == [0, 0, 0]
    assert all(0.2 * 2**n <= pause_s(4 + n) <= 0.4 * 2**n for n in range(4))
    assert 7 <= pause_s(1000) <= 13


HANGS = """
import http.server, os, pathlib, sys, time
hung, looks = pathlib.Path(sys.argv[1]), []

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        looks.append(self.path)
        if looks.count("/livez") > 2 and not hung.exists():
            hung.touch()
            time.sleep(3600)
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Health).serve_forever()
"""


async def test_a_service_that_does_not_answer_livez_is_killed_and_started_again(data: Path) -> None:
    """It lives, answers no more after its second look, and is of no use; what is said of it names it and why."""
    reports: list[str] = []
    launcher, port = Launcher(data, reports.append), free_port()
    argv = [sys.executable, "-c", HANGS, str(data / "hung"), str(port)]
    service = Child("service", argv, ready=lambda: is_ready(port), health_port=port)
    await launcher.start(service)
    first = service.process
    await wait_until(lambda: service.restarts == 1, timeout=30, what="it was ended")
    await wait_until(lambda: is_ready(port), timeout=30, what="it answers again")
    assert first is not None
    assert first.returncode == -signal.SIGKILL
    assert reports[0].startswith("service has not answered /livez for about 8 s")
    await launcher.stop()


async def test_a_service_that_has_not_answered_yet_is_left_alone(data: Path) -> None:
    """It may take long to start; who waits for it gives it up, or not."""
    launcher = Launcher(data, print)
    slow = Child("slow", [sys.executable, "-c", "import time; time.sleep(3600)"], health_port=free_port())
    await launcher.start(slow)
    use = of_service(free_port())
    assert [use.fault() for _ in range(use.looks + 1)] == [None] * (use.looks + 1)
    assert slow.restarts == 0
    await launcher.stop()
