"""`runwire logs` reads files; no process runs."""

import itertools
import time
from pathlib import Path

import pytest
import typer

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


def test_without_logs_it_names_both_ways_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`runwire up` writes them here, compose keeps its own."""
    monkeypatch.setenv("RUNWIRE_DATA_DIR", str(tmp_path / "nothing"))
    with pytest.raises(typer.Exit) as ended:
        logs(None)
    said = capsys.readouterr().err
    assert ended.value.exit_code == 1
    assert "`runwire up` writes them" in said
    assert "docker compose logs" in said


def test_following_shows_complete_lines(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of new files too, and of one that was begun anew."""
    gateway, planner = folder / "gateway.log", folder / "planner-1.log"
    gateway.write_text("old line\nhal")
    turns = itertools.count()

    def happens(_pause_s: float) -> None:
        match next(turns):
            case 0:
                with gateway.open("a") as log:
                    log.write("f\n")
                planner.write_text("begun\n")
            case 1:
                gateway.write_text("anew\n")
            case 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", happens)
    with pytest.raises(KeyboardInterrupt):
        shown(capsys, follow=True)
    assert capsys.readouterr().out.splitlines() == [
        "gateway | old line",
        "gateway | half",
        "planner-1 | begun",
        "gateway | anew",
    ]
