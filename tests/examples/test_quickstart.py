"""The files of examples/quickstart, one idea each: short, and run as their README says."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwire.credentials import Credential
from tests.examples.conftest import EXAMPLES, Start
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack
from tests.support.waiting import wait_until

FOLDER = EXAMPLES / "quickstart"
FILES = sorted(FOLDER.glob("*.py"))
QUESTION = "Count the words of the text 'one two three'"


@pytest.fixture
def stack(own_nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """What `make run` starts, with the quickstart's tools."""
    env = {"RUNWIRE_MODEL": "builtin/rehearsal"}
    folder = tmp_path_factory.mktemp("quickstart")
    system = Stack(own_nats_server.url, folder, env, planners=1, tool_runners=1)
    for name in ("tool", "artifact_tool"):
        system.add_tools(f"{name}-1", FOLDER / f"{name}.py")
    with system, system.showing_logs():
        yield system


async def test_a_client_asks_and_a_listener_prints(
    stack: Stack, start: Start, own_nats_server: NatsServer, tmp_path: Path
) -> None:
    """The client prints the answer that a quickstart tool gave; the listener prints the facts of the same run."""
    file = tmp_path / "listener.json"
    file.write_text(Credential(own_nats_server.url, "anybody", "anything").as_json())
    command = [sys.executable, str(FOLDER / "listener.py"), "default"]
    listener = await start(command, own_nats_server, RUNWIRE_NATS_CREDENTIALS=str(file))
    await wait_until(lambda: listener.lines, what="the listener has subscribed")
    client = await start([sys.executable, str(FOLDER / "client.py"), QUESTION], own_nats_server, RUNWIRE_URL=stack.url)

    assert await client.ended() == 0, client.complaints
    assert client.lines[0] == "count_words: succeeded"
    assert "3" in "".join(client.lines[1:])
    await wait_until(lambda: listener.lines[-1].endswith(" done"), what="the listener has seen the end")
    facts = [line.split()[1] for line in listener.lines[1:]]
    assert [facts[0], facts.count("observed"), facts[-1]] == ["run_started", 1, "done"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_short(file: str) -> None:
    """It shows one idea."""
    assert len((FOLDER / file).read_text(encoding="utf-8").splitlines()) < 30
