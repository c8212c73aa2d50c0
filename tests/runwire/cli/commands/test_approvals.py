"""`runwire approvals`, `approve`, `reject` and `answer`; `runwire sessions`."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contracts.wire.names import new_id
from runwire.client import Client
from runwire.local.data_folder import remembered
from tests.runwire.conftest import document, runwire
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("slow_tools")


def waiting(up: Path, question: str = "Send a report to ann@example.org: 'All is well'", **options: Any) -> str:
    """A run that waits for a person; its id."""

    async def ask() -> str:
        async with Client(remembered(up)["url"]) as client:
            status = await client.chat(question, **options)
            assert status.pauses, status

            async def listed() -> bool:
                return status.run_id in [each.run_id async for each in client.list_runs("waiting")]

            await wait_until(listed, what="it is listed, a moment later")
            return status.run_id

    return asyncio.run(ask())


def answer_of(up: Path, run: str) -> str:
    """The answer of a run, at its end."""
    answer: str = document("tail", run, data=up)["payload"]["raw_answer"]
    return answer


def test_what_waits_is_listed(up: Path) -> None:
    """Of all runs, of one, of one session; for people and as JSON."""
    session = new_id()
    run = waiting(up, session_id=session)
    pauses = [document("approvals", *of, data=up) for of in ((), ("--run", run), ("--session", session))]
    assert pauses[1] == pauses[2] != []
    assert pauses[1][0] in pauses[0]
    assert pauses[1][0]["arguments"] == {"to": "ann@example.org", "text": "All is well"}
    shown = runwire("approvals", "--run", run, data=up).stdout
    assert f"{run}/{pauses[1][0]['pause_id'][:8]}" in shown
    assert 'to = "ann@example.org"' in shown
    assert "waits for a person: approval · send_report" in runwire("runs", "show", run, data=up).stdout
    listed = document("sessions", data=up)
    assert [entry["open_pauses"] for entry in listed if entry["session_id"] == session] == [1]
    assert f"approval · send_report · {run}" in runwire("sessions", "ls", session[:20], data=up).stdout
    assert [each["run_id"] for each in document("runs", "--status", "waiting", "--session", session, data=up)] == [run]
    assert "waiting" in runwire("runs", "--session", session, data=up).stdout
    other = waiting(up)
    assert other in [each["run_id"] for each in document("approvals", data=up)]
    several = runwire("approve", data=up)
    assert (several.returncode, f"{other}/" in several.stderr) == (2, True)
    assert runwire("cancel", other, data=up).returncode == 0
    assert runwire("cancel", run, data=up).returncode == 0


def test_approve(up: Path) -> None:
    """What was approved is said on stderr; a second decision is refused."""
    run = waiting(up)
    assert f"name it: {run}/" in runwire("approve", data=up).stderr, "nobody is there to be asked"
    approved = runwire("approve", run, "--note", "fine", data=up)
    assert (approved.returncode, approved.stdout) == (0, ""), approved.stderr
    assert 'to = "ann@example.org"' in approved.stderr
    assert answer_of(up, run) == "The report was sent to ann@example.org."
    late = runwire("approve", run, data=up)
    assert (late.returncode, "no open pause" in late.stderr) == (6, True)


def test_reject(up: Path) -> None:
    """The model reads the note; a name that was read earlier stands for nothing else."""
    run = waiting(up)
    assert "something else waits now" in runwire("reject", f"{run}/.2", data=up).stderr
    assert "no open pause named zzz" in runwire("reject", f"{run}/zzz", data=up).stderr
    assert runwire("reject", run, "--note", "Ann is on leave", data=up).returncode == 0
    assert "Ann is on leave" in answer_of(up, run)


def test_answer(up: Path) -> None:
    """A text, or JSON."""
    run = waiting(up, "Paint the thing 'fence'")
    refused = runwire("answer", run, '{"colour": 3}', data=up)
    assert (refused.returncode, "invalid_input" in refused.stderr) == (6, True), refused.stderr
    assert runwire("answer", run, "red", data=up).returncode == 0
    assert answer_of(up, run) == "painted fence red"
