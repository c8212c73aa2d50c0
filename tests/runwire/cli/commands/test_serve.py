"""`runwire serve --check` and `--reload`, `runwire call --local`: what an author does before there is a server."""

import json
import subprocess
import sys
from pathlib import Path

from tests.runwire.conftest import runwire
from tests.support.server_process import ends_with_block
from tests.support.up import environment
from tests.support.waiting import wait_until_blocking

TOOLS = """
from runwire import ToolContext, tool

@tool(desc="Halve", side_effects="none")
async def halve(number: float, ctx: ToolContext) -> float:
    await ctx.progress("halving", 0.5)
    return number / 2

@tool
def vague(a, b: int = 0):
    raise KeyError("nope")
"""


def test_a_model_that_would_have_to_guess_is_named(tmp_path: Path) -> None:
    """With the line to mend."""
    (tmp_path / "own.py").write_text(TOOLS)
    checked = runwire("serve", "--check", "own.py", data=tmp_path)
    assert (checked.returncode, checked.stdout) == (0, "✓ halve, vague\n")
    assert "own.py:9: vague has no description" in checked.stderr
    assert "own.py:9: vague: the model does not know what to pass as a: annotate its type" in checked.stderr


def test_a_tool_is_called_without_a_server(tmp_path: Path) -> None:
    """Its reports are shown, its failure with its author's frames alone."""
    (tmp_path / "own.py").write_text(TOOLS)
    called = runwire("call", "halve", '{"number": 5}', "--local", "own.py", data=tmp_path)
    assert (called.returncode, called.stdout, called.stderr) == (0, "2.5\n", "halving 50%\n")
    failed = runwire("call", "vague", '{"a": 1}', "--local", "own.py", "-o", "json", data=tmp_path)
    frames = json.loads(failed.stdout)["failure"]
    assert (failed.returncode, frames.count("File ")) == (3, 1)
    assert "KeyError: 'nope'" in frames
    refused = runwire("call", "halve", "{}", "--local", "own.py", data=tmp_path)
    assert (refused.returncode, "number: Field required" in refused.stderr) == (3, True)


def test_a_file_that_changes_is_served_anew(tmp_path: Path) -> None:
    """Also after it could not be loaded."""
    log, own = tmp_path / "log", tmp_path / "own.py"
    own.write_text("broken(")
    command = [sys.executable, "-P", "-m", "runwire", "serve", "--reload", "own.py", "--nats-url", "nats://127.0.0.1:1"]
    with (
        log.open("w") as out,
        subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path), stdout=out, stderr=out) as process,
        ends_with_block(process),
    ):
        wait_until_blocking(lambda: "SyntaxError" in log.read_text(), timeout=60, what="it says what is wrong")
        own.write_text(TOOLS)
        wait_until_blocking(lambda: "vague has no description" in log.read_text(), timeout=60, what="it is loaded")
    assert process.returncode == 130
