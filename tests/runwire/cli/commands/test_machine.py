"""`runwire logs` reads files; no process runs."""

from pathlib import Path

import pytest

from runwire.cli.commands.machine import logs


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of logs, empty."""
    monkeypatch.setenv("RUNWIRE_DATA_DIR", str(tmp_path))
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def shown(capsys: pytest.CaptureFixture[str], *services: str, lines: int = 20, follow: bool = False) -> list[str]:
    """The lines that the command prints."""
    logs(list(services) or None, follow, lines)
    return capsys.readouterr().out.splitlines()


def test_the_last_lines_of_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the name in front, unless there is one log only."""
    (folder / "gateway.log").write_text("a\nb\nc\n")
    (folder / "planner-1.log").write_bytes(b"\xff\n")
    (folder / "s3.log").write_text("")
    assert shown(capsys, lines=2) == ["gateway   | b", "gateway   | c", "planner-1 | \ufffd"]
    assert shown(capsys, "planner") == ["\ufffd"]
    assert shown(capsys, "gateway", lines=0) == []
