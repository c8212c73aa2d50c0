"""The order in which a program looks for NATS and its login; credential files, and logins in URLs."""

import stat
from pathlib import Path

import pytest

from runwire.credentials import Credential, credential_of_url, find_login, read_credential
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


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Only its owner can read it, and no text shows the password."""
    written = Credential("tls://nats.example:4222", "tool_weather", "canary", "/etc/ca.pem", "the tool weather")
    file = tmp_path / "weather.json"
    write_private(file, written.as_json())

    assert read_credential(file) == written
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "canary" not in repr(written)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read: No such file"),
        ("canary", "is not JSON"),
        ('["canary"]', "has no text as url, user, password"),
        ('{"url": "nats://a:1", "user": "u"}', "has no text as password"),
        ('{"url": "nats://a:1", "user": "canary", "password": 7}', "has no text as password"),
    ],
)
def test_a_malformed_file_is_named(tmp_path: Path, text: str | None, reason: str) -> None:
    """With what is wrong, and nothing of what is in it."""
    file = tmp_path / "broken.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidCredential, match=reason) as refused:
        read_credential(file)
    assert str(file) in str(refused.value)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("nats://a:1", Credential("nats://a:1")),
        ("a:1", Credential("nats://a:1")),
        ("tls://tool_x:p%40ss@a:1", Credential("tls://a:1", "tool_x", "p@ss")),
        ("nats://u:1p@a:1, nats://u:1p@b:2", Credential("nats://a:1,nats://b:2", "u", "1p")),
        ("nats://u:p@[::1]:4222", Credential("nats://[::1]:4222", "u", "p")),
    ],
)
def test_a_login_in_a_url(url: str, found: Credential) -> None:
    """It is taken out, so that the address can be shown."""
    assert credential_of_url(url) == found


@pytest.mark.parametrize(
    "url", ["nats://", "nats://user:canary", "http://user:canary@a:1", "nats://canary@a:1", "nats://a:x"]
)
def test_a_malformed_url_is_refused(url: str) -> None:
    """Without repeating it."""
    with pytest.raises(InvalidCredential) as refused:
        credential_of_url(url)
    assert "canary" not in str(refused.value)
