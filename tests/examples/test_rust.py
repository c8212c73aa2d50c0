"""The tool and the listener of the Rust SDK, as processes on a running system."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES
from tests.runwire.conftest import document, printed, runwire
from tests.support.builds import build
from tests.support.needs import needs_program
from tests.support.server_process import ends_with_block
from tests.support.up import environment
from tests.support.waiting import wait_until_blocking

# A first build takes 80 s of CPU time, which `make test` does without.
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def programs(pytestconfig: pytest.Config) -> Path:
    """The folder of the built examples. Cargo builds only what has changed since the last time."""
    cargo, target = str(needs_program("cargo")), pytestconfig.cache.mkdir("rust")
    command = [cargo, "build", "--quiet", "--examples", "--target-dir", str(target)]
    build(command, EXAMPLES.parent / "sdk" / "rust", limit=1_500)
    return target / "debug" / "examples"


@pytest.fixture
def serving(programs: Path, up: Path) -> Iterator[None]:
    printed("credentials", "tool", "count_words", "--out", "count_words.json", data=up)
    env = environment(up) | {"RUNWIRE_NATS_CREDENTIALS": str(up / "count_words.json")}
    process = subprocess.Popen([programs / "count_words"], env=env)
    with ends_with_block(process):
        wait_until_blocking(lambda: "count_words" in printed("tools", data=up), timeout=30, what="it is offered")
        yield
    assert process.returncode == 0


@pytest.mark.usefixtures("serving")
def test_a_tool_answers_and_a_listener_sees_its_run(programs: Path, up: Path) -> None:
    """With a credential each; what is refused is said."""
    assert printed("call", "count_words", '{"text": "to be or not to be"}', data=up).strip() == '{"words": 6}'
    assert "give one with words" in runwire("call", "count_words", '{"text": " "}', data=up).said
    (run,) = document("runs", "ls", "-n", "1", data=up)  # It ended in an error, like the last call.
    printed("credentials", "listener", "default", "--out", "listener.json", data=up)
    env = {**os.environ, "RUNWIRE_NATS_CREDENTIALS": str(up / "listener.json")}
    watched = subprocess.run(
        [programs / "watch", run["run_id"]], env=env, capture_output=True, text=True, timeout=30, check=True
    )
    kind, _, event, body = watched.stdout.splitlines()[-1].split(" ", 3)
    assert (kind, event, json.loads(body)["code"]) == ("log", "error", "tool_error")
    refused = subprocess.run(
        [programs / "count_words"], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert refused.returncode == 1
    assert "runwire credentials tool count_words" in refused.stderr
