"""The listeners in TypeScript and Go that receive pauses over NATS and decide over HTTP; and the client in Python."""

import asyncio
import sys
from pathlib import Path

import pytest

from runwire.local.data_folder import remembered
from tests.examples.conftest import EXAMPLES, Running, Start, program
from tests.runwire.conftest import runwire
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

# The limit covers the build, which counts for the first test.
pytestmark = pytest.mark.timeout(300)
QUESTION = "Send a report to ann@example.org: 'All is well'"


@pytest.fixture(params=["typescript", "go"])
def decide(request: pytest.FixtureRequest) -> list[str]:
    return program(request.getfixturevalue(request.param), "decide")


async def prints(running: Running, text: str) -> None:
    """Wait until it has printed a line with a text."""
    await wait_until(lambda: any(text in line for line in running.lines), timeout=60, what=f"{text} is printed")


async def test_calls_of_the_given_tools_are_approved(
    decide: list[str], start: Start, nats_server: NatsServer, up: Path
) -> None:
    """With the rights of a listener on NATS, and of an API key at the gateway."""
    file = up / f"listener-{Path(decide[-1]).name}.json"
    made = await asyncio.to_thread(runwire, "credentials", "listener", "default", "--out", str(file), data=up)
    assert made.returncode == 0, made.stderr
    here = {"RUNWIRE_NATS_CREDENTIALS": str(file), "RUNWIRE_URL": remembered(up)["url"]}
    listener = await start([*decide, "default", "send_report"], nats_server, **here)
    await prints(listener, "listening")
    ran = await asyncio.to_thread(runwire, "run", QUESTION, data=up)
    assert (ran.returncode, "The report was sent to ann@example.org" in ran.stdout) == (0, True), ran.stdout
    await prints(listener, "approval send_report")
    await prints(listener, " approved")


@pytest.mark.sample(1)
@pytest.mark.parametrize(("decision", "said"), [("y", "The report was sent"), ("n", "the user does not want it")])
async def test_the_quickstart_asks_its_user(up: Path, decision: str, said: str) -> None:
    """And goes on with what the user decides."""
    command = [sys.executable, str(EXAMPLES / "quickstart" / "approvals.py"), QUESTION]
    pipe = asyncio.subprocess.PIPE
    env = {"PYTHONPATH": str(EXAMPLES.parent), "RUNWIRE_URL": remembered(up)["url"]}
    process = await asyncio.create_subprocess_exec(*command, env=env, stdin=pipe, stdout=pipe)
    output, _ = await process.communicate(f"{decision}\n".encode())
    assert process.returncode == 0
    assert "send_report {'to': 'ann@example.org', 'text': 'All is well'}: approve? [y/n]" in output.decode()
    assert said in output.decode()
