"""`runwire logs` reads files; no process runs."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.runwire.conftest import printed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUNWIRE_DATA_DIR", str(tmp_path))
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def shown(folder: Path, *options: str) -> list[str]:
    return printed("logs", *options, data=folder.parent).splitlines()


def test_by_time_for_people(folder: Path) -> None:
    """Of all processes, each in its own form; a line without a time follows the one before it."""
    line = (
        '{"run_id": "abc", "event": "%s", "service": "planner", "level": "%s", "timestamp": "2026-11-27T11:00:0%dZ"}\n'
    )
    (folder / "planner-1.log").write_text(line % ("begun", "info", 1) + line % ("failed", "error", 4) + "Traceback\n")
    zone = datetime(2026, 11, 27, 11, 0, 2, tzinfo=UTC).astimezone()
    (folder / "nats-server.log").write_text(f"[1] {zone:%Y/%m/%d %H:%M:%S}.7 [WRN] slow\nnot yet comp")
    (folder / "tools-x.log").write_bytes(f"{zone:%Y-%m-%d %H:%M:%S},9 INFO runwire: ".encode() + b"\xff\n")
    lines = [line.split(maxsplit=1)[1] for line in shown(folder)]
    assert lines == [
        "planner-1   begun run_id=abc",
        "nats-server slow",
        "tools-x     runwire: \ufffd",
        "planner-1   failed run_id=abc",
        "planner-1   Traceback",
    ]
    assert [len(shown(folder, *options.split())) for options in ("-s planner", "-n 2", "-n 0")] == [3, 2, 0]
    assert [len(shown(folder, *options.split())) for options in ("--level error", "--run ab", "--since 1s")] == [
        2,
        2,
        0,
    ]
    assert shown(folder, "--run", "ab", "-o", "jsonl")[0] == (line % ("begun", "info", 1)).strip()
