"""The path of somebody who has the wheel and nothing else: a tool, a page that asks, and why a run has failed."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runwire.local.data_folder import remembered
from services.gateway.auth.key_lines import new_key
from tests.browser.conftest import Site
from tests.runwire.conftest import printed
from tests.support.needs import needs_program
from tests.support.up import UP_S, running_up
from tests.support.waiting import wait_until_blocking
from tests.support.wheel import build_wheel

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]
KEY, LINE = new_key("default")
PAGE = """
  const gateway = %s, headers = { Authorization: "Bearer %s", "Content-Type": "application/json" };
  const ask = async (question) => {
    const answer = await fetch(gateway + "/chat", { method: "POST", headers, body: JSON.stringify(question) });
    return await answer.json();
  };
  seen.answer = await ask({ query: 'Count the words of the text "a b c"', tools: ["words_of"] });
  seen.failed = await ask({ query: "What is 1+1?", agent: "nobody" });
"""


class Stranger:
    """Somebody with the wheel, in a folder that was empty."""

    def __init__(self, home: Path, url: str, nats_url: str) -> None:
        self.home = home / "home"
        self.home.mkdir()
        (home / "wheel").mkdir()
        with zipfile.ZipFile(build_wheel(home / "wheel")) as archive:
            archive.extractall(home / "site")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNWIRE_")}
        self.env = kept | {"PYTHONPATH": str(home / "site"), "RUNWIRE_URL": url, "RUNWIRE_API_KEY": KEY}
        self.env |= {"HOME": str(self.home), "RUNWIRE_NATS_URL": nats_url, "NO_COLOR": "1"}

    def runs(self, *arguments: str) -> str:
        """Run `runwire` to its end and return what it printed."""
        command = [sys.executable, "-P", "-m", "runwire", *arguments]
        ran = subprocess.run(command, cwd=self.home, env=self.env, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    @contextmanager
    def serves(self, folder: str) -> Iterator[None]:
        """Do what the Dockerfile of a project does."""
        (command,) = re.findall(r"^CMD (.+)$", (self.home / folder / "Dockerfile").read_text(), re.MULTILINE)
        log = self.home / "serve.log"
        with log.open("w") as out:
            serving = subprocess.Popen(
                [sys.executable, *json.loads(command)[1:]], cwd=self.home / folder, env=self.env, stderr=out
            )
            try:
                wait_until_blocking(lambda: "is offered" in log.read_text(), timeout=UP_S, what="the tool is offered")
                yield
            finally:
                serving.terminate()
                serving.wait(30)


def test_the_path_of_a_stranger(tmp_path: Path) -> None:
    """Each step as its page says, and the failed run is found by the command line."""
    needs_program("chromium")
    data = tmp_path / "up"
    data.mkdir()
    (tmp_path / "no_charts.js").touch()
    with (
        Site(tmp_path / "no_charts.js", host="localhost") as site,
        running_up(data, RUNWIRE_API_KEYS=LINE, RUNWIRE_CORS_ORIGINS=site.origin),
    ):
        endpoints = remembered(data)
        stranger = Stranger(tmp_path, endpoints["url"], endpoints["nats_url"])
        printed("credentials", "tool", "words_of", "--out", str(tmp_path / "words_of.json"), data=data)
        stranger.env["RUNWIRE_NATS_CREDENTIALS"] = str(tmp_path / "words_of.json")
        stranger.runs("new", "tool", "words_of")
        with stranger.serves("words_of"):
            assert '"words": 3' in stranger.runs("call", "words_of", '{"text": "a b c"}', "-o", "json")
            site.script = PAGE % (json.dumps(endpoints["url"]), KEY)
            seen = site.opened(tmp_path)
        assert "words: 3" in seen["answer"]["payload"]["raw_answer"]
        assert seen["failed"]["status"] == "error"
        (failed,) = json.loads(stranger.runs("runs", "ls", "--status", "error", "-o", "json"))
        assert failed["code"] == seen["failed"]["code"]
        shown = stranger.runs("runs", "show", failed["run_id"][:12])
        assert "nobody" in shown
        assert failed["code"] in shown


def test_an_agent_of_ones_own(tmp_path: Path) -> None:
    """`runwire up` in the folder that `runwire new agent` makes takes its file, and its test passes."""
    printed("new", "agent", "accountant", data=tmp_path)
    project = tmp_path / "accountant"
    with running_up(project, RUNWIRE_AGENTS_FILE="agents.toml"):
        url = remembered(project)["url"]
        test = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
        subprocess.run(test, cwd=project, env=os.environ | {"RUNWIRE_URL": url}, check=True)
