"""Gateways with a name: which one a command asks, and with which key."""

import os
from pathlib import Path

import pytest
import typer

from runwire.cli import frame
from runwire.cli.frame import Contexts
from tests.runwire.conftest import document, runwire

KEY = "rw_canary"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, which holds two contexts; the first one is taken."""
    monkeypatch.setattr(typer, "get_app_dir", lambda _: str(tmp_path / "config"))
    for name in ("prod", "other"):
        url = f"https://{name}.example.org"
        assert runwire("context", "add", name, "--url", url, "--api-key", KEY + name, data=tmp_path).returncode == 0
    return tmp_path


def asked(folder: Path, *options: str, url: str | None = None, api_key: str | None = None) -> tuple[str, str | None]:
    """What a command asks that is called with these options of `runwire`, and its own."""
    runwire(*options, "context", "ls", data=folder)
    return frame.gateway_of(url, api_key)


def test_a_key_goes_to_its_own_gateway_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The named context, else a URL, else the current context."""
    assert asked(folder) == ("https://prod.example.org", f"{KEY}prod")
    assert asked(folder, "--context", "other", api_key="x") == ("https://other.example.org", f"{KEY}other")
    assert asked(folder, url="http://x") == ("http://x", None)
    monkeypatch.setenv("RUNWIRE_CONTEXT", "other")
    assert asked(folder) == ("https://other.example.org", f"{KEY}other")
    assert asked(folder, "--context", "prod") == ("https://prod.example.org", f"{KEY}prod")
    assert os.environ["RUNWIRE_CONTEXT"] == "other", "processes that a command starts ask what the user's shell asks"
    assert asked(folder, "--context", "", url="http://x") == ("http://x", None)
    monkeypatch.delenv("RUNWIRE_CONTEXT")
    with pytest.raises(typer.BadParameter, match="not both"):
        asked(folder, "--context", "prod", url="http://x")
    with pytest.raises(typer.BadParameter, match="no context is called y; there are other, prod"):
        asked(folder, "--context", "y")
    runwire("context", "use", "", data=folder)
    assert asked(folder, api_key="x") == ("http://127.0.0.1:8080", "x")


def test_they_are_listed_without_keys_and_kept_for_their_owner_alone(folder: Path) -> None:
    """One that is removed is not taken any more."""
    runwire("context", "use", "other", data=folder)
    runwire("context", "remove", "prod", data=folder)
    listed = document("context", "ls", data=folder)
    assert listed == [{"name": "other", "url": "https://other.example.org", "has_key": True, "is_current": True}]
    assert KEY not in runwire("context", data=folder).stdout
    assert (folder / "config" / "contexts.json").stat().st_mode & 0o777 == 0o600
    assert KEY not in repr(Contexts.read())
    runwire("context", "remove", "other", data=folder)
    assert "there are no contexts" in runwire("context", "ls", data=folder).stderr
    assert runwire("context", "use", "prod", data=folder).returncode == 2
