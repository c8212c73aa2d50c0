"""The order in which a program looks for NATS and its login."""

from pathlib import Path

import pytest

from runwire.credentials import Credential, find_login
from runwire.errors import IncompleteLogin, InvalidCredential
from runwire.identities import write_private


@pytest.fixture(autouse=True)
def _nothing_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CREDENTIALS", "URL", "USER", "PASSWORD", "CA"):
        monkeypatch.delenv(f"RUNWIRE_NATS_{name}", raising=False)
    monkeypatch.delenv("NATS_URL", raising=False)
    monkeypatch.setenv("RUNWIRE_DATA_DIR", str(tmp_path / "nothing"))


def found(**given: str) -> tuple[str, str, str]:
    """Address, user and password."""
    login = find_login(**given)
    credential = login.credential()
    return login.url, credential.user, credential.password


def test_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source hides those after it, as a whole."""
    assert found() == ("nats://127.0.0.1:4222", "", "")
    monkeypatch.setenv("NATS_URL", "nats://b:pb@b:2")
    assert found() == ("nats://b:2", "b", "pb")
    monkeypatch.setenv("RUNWIRE_NATS_URL", "nats://c:3")
    assert found() == ("nats://c:3", "", "")
    monkeypatch.setenv("RUNWIRE_NATS_USER", "c")
    monkeypatch.setenv("RUNWIRE_NATS_PASSWORD", "pc")
    assert found() == ("nats://c:3", "c", "pc")
    file = tmp_path / "d.json"
    write_private(file, Credential("nats://d:4", "d", "pd").as_json())
    monkeypatch.setenv("RUNWIRE_NATS_CREDENTIALS", str(file))
    assert found() == ("nats://d:4", "d", "pd")
    assert found(url="nats://e:5", user="e", password="pe") == ("nats://e:5", "e", "pe")


@pytest.mark.parametrize("name", ["RUNWIRE_NATS_USER", "RUNWIRE_NATS_PASSWORD"])
def test_half_a_login_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS would take it for none at all."""
    monkeypatch.setenv(name, "canary")
    with pytest.raises(IncompleteLogin) as refused:
        find_login("nats://a:1")
    assert "canary" not in str(refused.value)


def test_tls_is_demanded_by_the_url_or_by_an_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an authority that cannot be used is refused."""
    assert not find_login("nats://a:1").demands_tls
    assert find_login("tls://a:1").demands_tls
    monkeypatch.setenv("RUNWIRE_NATS_CA", str(tmp_path / "ca.pem"))
    login = find_login("nats://a:1")
    assert login.demands_tls
    with pytest.raises(InvalidCredential, match="cannot be read: No such file"):
        login.ssl_context()
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(InvalidCredential, match="is not a PEM file"):
        login.ssl_context()
