"""Peers that are not installed."""

from pathlib import Path

import pytest

from benchmarks.product.peers import installed


def test_what_is_missing_is_named_with_the_commands_that_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In an empty folder; without a folder the variable is named."""
    monkeypatch.setenv("PEERS_HOME", str(tmp_path))
    with pytest.raises(SystemExit, match="No peer is installed"):
        installed()
    said = capsys.readouterr().out
    assert all(f"{name} is left out" in said for name in ("agno", "restate"))
    assert "pip install 'agno[os]==" in said
    assert "npm install --prefix $PEERS_HOME/npm" in said
    monkeypatch.delenv("PEERS_HOME")
    with pytest.raises(SystemExit, match="set PEERS_HOME"):
        installed()


def test_one_peer_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The others are left out."""
    program = tmp_path / "venvs" / "agno" / "bin" / "uvicorn"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setenv("PEERS_HOME", str(tmp_path))
    assert list(installed()) == ["agno"]
