"""`runwire new`: what it makes works as it lies, its test, its Dockerfile's command and its README's commands."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from services.planner.agents import load_agents
from tests.runwire.conftest import document, printed, runwire
from tests.support.needs import needs_program
from tests.support.up import environment


def made(folder: Path, *arguments: str) -> Path:
    printed("new", *arguments, data=folder)
    project = folder / arguments[1]
    copied = re.findall(r"^COPY (.+) \S+$", (project / "Dockerfile").read_text(), re.MULTILINE)
    names = {name for line in copied for name in line.split()} - {"*.whl"}
    assert names <= {path.name for path in project.iterdir()}
    return project


def test_a_tool_in_python(tmp_path: Path) -> None:
    """Its tests pass, and what its container runs can be served; tests/system/test_stranger.py serves one."""
    project = made(tmp_path, "tool", "count_of_words")
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    ran = subprocess.run(tests, cwd=project, env=environment(project), capture_output=True, text=True, check=False)
    assert (ran.returncode, "3 passed" in ran.stdout) == (0, True), ran.stdout
    (command,) = re.findall(r"^CMD (.+)$", (project / "Dockerfile").read_text(), re.MULTILINE)
    assert json.loads(command)[:4] == ["python", "-P", "-m", "runwire"]
    checked = runwire(*json.loads(command)[4:], "--check", data=project)
    assert (checked.stdout, checked.stderr) == ("✓ count_of_words\n", "")
    called = printed("call", "count_of_words", '{"text": "a b c"}', "--local", "count_of_words.py", data=project)
    assert json.loads(called) == {"words": 3}


def test_a_tool_in_shell(tmp_path: Path) -> None:
    """Its test passes; that it can be served is tested beside the other languages."""
    needs_program("jq")
    project = made(tmp_path, "tool", "shell_words", "--lang", "shell")
    subprocess.run([project / "test_shell_words.sh"], check=True)


def test_an_agent(tmp_path: Path) -> None:
    """The planner takes its file, which `runwire up` finds."""
    project = made(tmp_path, "agent", "accountant")
    assert {"name": "RUNWIRE_AGENTS_FILE", "value": "agents.toml", "source": "runwire.toml"} in document(
        "config", "show", data=project
    )
    assert load_agents(project / "agents.toml").keys() == {"default", "accountant"}


@pytest.mark.parametrize("name", ["it-has-dashes", "7up", "", "there"])
def test_a_name_that_cannot_be_one(name: str, tmp_path: Path) -> None:
    """Or one that is taken: nothing is written."""
    (tmp_path / "there").mkdir()
    assert runwire("new", "tool", name, data=tmp_path).returncode == 2
    assert [*tmp_path.rglob("*")] == [tmp_path / "there"]
