"""Runs, their artifacts and schedules from the command line, beside a running `runwire up`."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contracts.wire.names import new_id
from runwire.cli.commands import tools
from tests.runwire.conftest import document, printed, runwire, started
from tests.support.images import with_metadata
from tests.support.up import environment
from tests.support.waiting import wait_until_blocking

CHART = "Which region grew most in sales.csv? Draw a chart."


def asked(up: Path, question: str, *options: str) -> str:
    run_id: str = document("run", question, *options, data=up)["run_id"]
    return run_id


def until_newest(up: Path, run: str) -> None:
    """A run is in the list a moment after its end was seen."""
    wait_until_blocking(lambda: document("runs", "ls", "-n", "1", data=up)[0]["run_id"] == run, what="it is listed")


def test_runs_are_listed(up: Path) -> None:
    """The newest first, as a table and as JSON; a pipe gets whole lines."""
    first, second = asked(up, "What is 6*7?"), asked(up, "What is\n 17*23?")
    until_newest(up, second)
    listed = document("runs", "ls", data=up)
    assert [run["run_id"] for run in listed][:2] == [second, first]
    assert document("runs", "ls", "-n", "1", data=up) == listed[:1]
    table = printed("runs", "ls", "-n", "2", "--status", "done", data=up).splitlines()
    assert table[0].split() == ["run", "status", "age", "error", "question"]
    assert table[1].startswith(second)
    assert table[1].endswith("What is 17*23?")
    assert document("runs", "ls", "--status", "queued", data=up) == []


def test_a_beginning_is_an_id_and_none_is_the_newest(up: Path) -> None:
    """Nothing is deleted or cancelled for no id; lists give an item a line; a refusal is JSON too."""
    first, second = asked(up, "What is 6*7?", "--agent", "default"), asked(up, CHART, "--session", "charts")
    until_newest(up, second)
    assert [document("runs", "show", *given, data=up)["run_id"] for given in ((), (first[:24],))] == [second, first]
    assert "East grew most" in printed("tail", data=up)
    printed("fetch", "analyze_table.chart", "--run", second[:24], "-o", "chart.json", data=up)
    assert json.loads((up / "chart.json").read_text())["series"]
    assert runwire("delete", "", data=up).returncode == 6
    assert runwire("cancel", data=up).returncode == 2
    lines = printed("runs", "-n", "2", "--since", "1h", "-o", "jsonl", data=up).splitlines()
    assert [json.loads(line)["run_id"] for line in lines] == [second, first]
    assert [run["run_id"] for run in document("runs", "ls", "--session", "char", data=up)] == [second]
    assert f"{second} had ended before" in runwire("runs", "cancel", second[:24], data=up).stderr
    refused = runwire("tail", "f" * 32, "-o", "json", data=up)
    assert (refused.returncode, json.loads(refused.stdout)["error"]["code"]) == (6, "not_found")


def test_a_run_is_asked_again(up: Path) -> None:
    """As it was asked; what no caller has asked is not."""
    first = asked(up, "What is 6*7?", "--max-steps", "5", "--tool", "calculate")
    again = document("runs", "retry", first, data=up)
    assert (again["run_id"] != first, "42" in again["payload"]["raw_answer"]) == (True, True)
    requests = [
        json.loads(printed("tail", run, "-o", "jsonl", data=up).splitlines()[0])["request"]
        for run in (first, again["run_id"])
    ]
    assert len({json.dumps([each["query"], each["limits"], each["tools"]]) for each in requests}) == 1
    called = document("tools", "call", "calculate", '{"expression": "6*7"}', data=up)["run_id"]
    assert runwire("runs", "retry", called, data=up).returncode == 2


@pytest.mark.usefixtures("slow_tools")
def test_a_call_that_takes_long_shows_what_its_tool_reports(up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, while it is followed; the result is the same."""
    monkeypatch.setattr(tools, "_QUIET_S", 0.0)
    topic = new_id()

    def let_it_end() -> None:
        listed = ("runs", "--status", "running", "-o", "json")
        wait_until_blocking(lambda: '"call"' in started(*listed, data=up).stdout, what="the call goes on")
        (up / topic).touch()

    with ThreadPoolExecutor() as pool:
        ending = pool.submit(let_it_end)
        called = runwire("call", "ponder", json.dumps({"topic": topic}), data=up)
        ending.result()
    assert (called.returncode, json.loads(called.stdout)) == (0, {"answer": f"pondered {topic}"})
    assert called.said == f"pondering {topic} 50%"


def test_a_run_is_shown(up: Path) -> None:
    """With its question, steps, calls, answer, artifacts and costs, for programs and for people."""
    run_id = asked(up, CHART)
    report = document("runs", "show", run_id, data=up)
    assert (report["status"], report["query"], report["model"]) == ("done", CHART, "builtin/rehearsal")
    assert [(step["step"], step["node"]) for step in report["steps"]] == [(1, "analyze_table"), (2, "final_response")]
    (call,) = report["steps"][0]["calls"]
    assert (call["tool"], call["status"], call["args"]["file"]) == ("analyze_table", "succeeded", "sales.csv")
    assert [artifact["name"] for artifact in report["artifacts"]] == ["analyze_table.chart"]
    shown = runwire("runs", "show", run_id, data=up).stdout
    texts = (CHART, "done · answer_complete", "→ analyze_table", "East grew most", "analyze_table.chart", "2 model")
    assert [text for text in texts if text not in shown] == []


def test_a_run_takes_what_a_request_takes(up: Path) -> None:
    """Limits, user, context, effort, and what happens while another run has the turn."""
    options = ["--user", "ann", "--context", '{"city": "Bonn"}', "--effort", "low", "--on-busy", "reject"]
    limits = ["--max-tokens", "50000", "--max-cost-usd", "1.5", "--max-tool-calls", "3"]
    run_id = asked(up, "What is 6*7?", *options, *limits)
    events = runwire("tail", run_id, "-o", "jsonl", data=up).stdout.splitlines()
    request = next(event["request"] for event in map(json.loads, events) if event["type"] == "run_started")
    assert (request["user_id"], request["llm_context"], request["on_busy"]) == ("ann", {"city": "Bonn"}, "reject")
    assert request["reasoning_effort"] == "low"
    assert (request["limits"]["max_tokens"], request["limits"]["max_tool_calls"]) == (50_000, 3)
    refused = runwire("run", "x", "--context", "[1]", data=up)
    assert (refused.returncode, "--context" in refused.stderr) == (2, True)


def test_a_run_is_saved(up: Path, tmp_path: Path) -> None:
    """Its answer, its payload and its artifacts, those of the store with their bytes; nothing is overwritten."""
    (tmp_path / "drawn.png").write_bytes(with_metadata("png"))
    folder = tmp_path / "new" / "saved"
    options = ("--image", str(tmp_path / "drawn.png"), "--save", str(folder))
    run_id = asked(up, CHART, *options)
    files = {path.name: path for path in folder.iterdir()}
    assert files.keys() == {"answer.md", "payload.json", "analyze_table.chart.json", "drawn.png"}
    payload = json.loads(files["payload.json"].read_text())
    assert payload["raw_answer"] + "\n" == files["answer.md"].read_text()
    chart = json.loads(files["analyze_table.chart.json"].read_text())
    assert chart == payload["artifacts"]["analyze_table"]["chart"]
    listed = document("artifacts", run_id, data=up)
    stored = {artifact["name"]: artifact for artifact in listed}["drawn.png"]
    assert stored["size"] == (folder / "drawn.png").stat().st_size
    table = runwire("artifacts", run_id, data=up).stdout
    assert stored["artifact_id"] in table
    assert "analyze_table.chart" in table
    opened = runwire("artifacts", run_id, "--open", data=up, BROWSER="true")
    assert f"/playground#/s/run-{run_id}" in opened.said
    assert opened.stdout == table
    again = runwire("run", CHART, "--save", str(folder), data=up)
    assert (again.returncode, again.stdout) == (2, "")
    assert "is not empty" in again.said


def test_an_unknown_run_is_named(up: Path) -> None:
    """By every command, in one line."""
    for command in (("runs", "show"), ("artifacts",)):
        for run_id in ("0" * 32, "nonsense/../x"):
            refused = runwire(*command, run_id, data=up)
            assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (6, "", 1)
            assert "not_found" in refused.stderr


@pytest.mark.sample(1)
@pytest.mark.parametrize("command", ["runs ls", "runs ls -o json"])
def test_a_reader_that_leaves_is_no_error(up: Path, command: str) -> None:
    """As in `runwire runs ls | head -1`."""
    asked(up, "What is 6*7?")
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "runwire", *command.split()],
        env=environment(up),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_a_schedule_is_added_shown_and_removed(up: Path) -> None:
    """For people and for programs; what is wrong is said by the field. docs/schedules.md lists them."""
    options = ("--cron", "30 2 * * *", "--time-zone", "Europe/Berlin", "--name", "nightly")
    added = printed("schedule", "add", "What is 6*7?", *options, data=up)
    lines = dict(line.split(maxsplit=1) for line in added.splitlines())
    assert (lines["name"], lines["times"]) == ("nightly", "30 2 * * * Europe/Berlin")
    assert added.count("next") == 3
    schedule = lines["schedule"]
    assert document("schedule", "show", schedule, data=up)["run"]["query"] == "What is 6*7?"
    assert runwire("schedule", "remove", schedule, data=up).returncode == 0
    gone = runwire("schedule", "show", schedule, data=up)
    assert (gone.returncode, "no such run, session, task, group, schedule" in gone.stderr) == (6, True)
    refused = runwire("schedule", "add", "Now?", "--cron", "0 2 * * *", "--time-zone", "Mars", data=up)
    assert (refused.returncode, "time_zone: " in refused.stderr) == (6, True), refused.stderr
