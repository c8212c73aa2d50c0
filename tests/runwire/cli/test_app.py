"""The command line is a contract: what it prints with `-o json` and how it exits."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from runwire import cli
from runwire.cli.app import COMMANDS, GROUPS, loaded
from runwire.client import transport
from tests.runwire.conftest import document, printed, runwire, started
from tests.support.images import CANARY, corners, with_metadata
from tests.support.needs import free_port

CHECKS = {"python", "nats-server", "data", "durability", "model", "gateway", "tools"}


def test_a_run_in_each_format(up: Path) -> None:
    """One document; one event per line, which `tail` prints again; for people the call, its outcome and the answer."""
    found = document("run", "What is 17*23?", data=up)
    assert set(found) == {"run_id", "status", "reason", "code", "payload", "usage"}
    assert (found["status"], found["reason"]) == ("done", "answer_complete")
    assert "391" in found["payload"]["raw_answer"]
    lines = printed("run", "What is 6*7?", "-o", "jsonl", data=up)
    events = [json.loads(line) for line in lines.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("run_started", "done")
    assert printed("tail", events[0]["run_id"], "-o", "jsonl", data=up) == lines
    shown = printed("run", "Which region grew most in sales.csv? Draw a chart.", data=up)
    for text in ("→ analyze_table", "← analyze_table", "answer_complete"):
        assert text in shown


def test_exit_codes(up: Path) -> None:
    """They tell what went wrong."""
    assert runwire("run", "What is 1+1?", "--deadline-s", "0.001", "-o", "json", data=up).returncode == 4
    assert runwire("run", "What is 1+1?", "--agent", "nobody", "-o", "json", data=up).returncode == 3
    assert runwire("run", data=up).returncode == 2
    assert runwire("run", "What is 1+1?", "--vision", "blind", data=up).returncode == 2
    assert runwire("tail", "0" * 32, data=up).returncode == 6
    refused = runwire("up", "--port", "0", data=up)
    assert refused.returncode == 1
    assert "another `runwire up`" in refused.stderr


def test_images(up: Path) -> None:
    """A stored image has the same pixels; a file that is no image is an error of the command line."""
    (up / "drawn.png").write_bytes(with_metadata("png"))
    (up / "page.png").write_text("<html>")
    given = ("--image", "drawn.png", "--image", "drawn.png", "--vision", "lenient")
    events = printed("run", "What is 6*7?", *given, "-o", "jsonl", data=up)
    request = json.loads(events.splitlines()[0])["request"]
    images = request["images"]
    assert request["vision"] == "lenient"
    assert [(image["mime_type"], image["filename"]) for image in images] == [("image/png", "drawn.png")] * 2
    printed("fetch", images[0]["artifact_id"], "-o", "kept.png", data=up)
    kept = (up / "kept.png").read_bytes()
    assert corners(kept) == corners(with_metadata("png"))
    assert CANARY.encode() not in kept
    for wrong, said in (("nowhere.png", "does not exist"), ("page.png", "is not a png, jpeg, webp or gif")):
        refused = runwire("run", "What?", "--image", wrong, data=up)
        assert refused.returncode == 2
        assert said in refused.said
    (up / "cut.png").write_bytes(with_metadata("png")[:-60])
    cut = runwire("run", "What?", "--image", "cut.png", data=up)
    assert (cut.returncode, "image_invalid" in cut.stderr, "images.0" in cut.stderr) == (6, True, True)


def test_tools_and_doctor(up: Path) -> None:
    """Both list what there is, as JSON too."""
    tools = document("tools", "ls", data=up)
    assert {"calculate", "search_documents", "analyze_table"} <= {tool["name"] for tool in tools}
    checks = document("doctor", "--ask", data=up)
    assert {check["name"] for check in checks} - {"failure"} == {*CHECKS, "answer"}
    (asked,) = [check["finding"] for check in checks if check["name"] == "answer"]
    assert asked.startswith("builtin/rehearsal has answered after")
    assert not [check for check in checks if check["status"] == "failed"]
    (model,) = [check["finding"] for check in checks if check["name"] == "model"]
    assert model.startswith("builtin/rehearsal (the planner's)")


def test_packages_of_the_same_names_do_no_harm(tmp_path: Path) -> None:
    """Of somebody else, on PYTHONPATH."""
    for name in ("contracts", "services"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError")
    command = [sys.executable, "-P", "-c", "import runwire.serving, runwire.cli.app; print(runwire.serving.__name__)"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert found.stdout == "runwire.serving\n", found.stderr


def test_version_and_completion(tmp_path: Path) -> None:
    """The version is that of the package; the printed script completes commands."""
    assert runwire("--version", data=tmp_path).stdout == f"runwire {version('runwire')}\n"
    is_named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # or it is the shell that started the tests
    script = started("--show-completion", "bash", data=tmp_path, **is_named).stdout
    assert "complete -o default -F _runwire_completion runwire" in script
    asked = {"_RUNWIRE_COMPLETE": "complete_bash", "COMP_WORDS": "runwire runs s", "COMP_CWORD": "2"}
    assert started(data=tmp_path, **asked).stdout.split() == ["show"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_one_says(name: str) -> None:
    """Its first paragraph: the list is printed without the modules of the commands."""
    assert " ".join(loaded(name).help.partition("\n\n")[0].split()) == COMMANDS[name]
    assert sum(name in names.split() for names in GROUPS.values()) == 1, "it is listed once"


@pytest.fixture
def _own_interrupt() -> Iterator[None]:
    """What Ctrl-C does is arranged for this process, which has other tests too."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_own_interrupt")
def test_an_unexpected_error_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the error, and how to see where it comes from."""

    def fail(*, prog_name: str) -> None:
        raise LookupError(f"nothing there for {prog_name}")

    monkeypatch.setattr("runwire.cli.app.app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (1, 1)
    assert "LookupError: nothing there for runwire" in said
    assert "RUNWIRE_LOG_LEVEL=debug" in said
    monkeypatch.setenv("RUNWIRE_LOG_LEVEL", "debug")
    with pytest.raises(LookupError):
        cli.main()


_INTERRUPTED = """
import signal, sys
from runwire.cli import main

# A process that was started in the background ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(self, name, *_):
        if name == sys.argv[-1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize("module", ["typer", "httpx"])
def test_ctrl_c_prints_no_traceback(module: str) -> None:
    """Also in the middle of an import."""
    program = [sys.executable, "-c", _INTERRUPTED, "tail", "0" * 32, "--url", "http://127.0.0.1:9", "--api-key", module]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode in {-signal.SIGINT, 130}
    assert "Traceback" not in ended.stderr


def test_an_unreachable_gateway_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the address, and how to start one."""
    monkeypatch.setattr(transport, "_MAX_REFUSED_S", 0.0)
    answer = runwire("tools", "--url", f"http://127.0.0.1:{free_port()}", data=tmp_path)
    assert answer.returncode == 6
    assert "nobody listens at http://127.0.0.1:" in answer.stderr
    assert "up`, or give --url" in answer.stderr


def test_a_misspelt_setting_is_reported(tmp_path: Path) -> None:
    """By `doctor`, and at every start."""
    wrong = {"RUNWIRE_MODLE": "openai/x"}
    found = runwire("doctor", "--url", "http://127.0.0.1:9", data=tmp_path, **wrong)
    (tmp_path / "file").write_text("")
    up = runwire("up", "--port", "0", data=tmp_path, RUNWIRE_DATA_DIR=str(tmp_path / "file"), **wrong)
    for said in (found.stdout, up.stdout):
        assert "RUNWIRE_MODLE is not a setting: nothing reads it; did you mean RUNWIRE_MODEL?" in said


def test_what_prevents_a_start_is_one_line(tmp_path: Path) -> None:
    """An unusable data folder, an invalid port, missing tools: no traceback, whatever the names contain."""
    (tmp_path / "[red]").write_text("")
    taken = runwire("up", data=tmp_path, RUNWIRE_DATA_DIR=str(tmp_path / "[red]"))
    assert taken.returncode == 1
    assert "[red] cannot be used: Not a directory; set RUNWIRE_DATA_DIR" in taken.stderr
    for arguments, said in ((("--port", "99999"), "--port"), (("--tools", "nowhere.py"), "does not exist")):
        refused = runwire("up", *arguments, data=tmp_path)
        assert refused.returncode == 2
        assert said in refused.stderr
