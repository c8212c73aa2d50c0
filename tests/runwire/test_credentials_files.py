"""Credential files, and logins in URLs."""

import stat
from pathlib import Path

import pytest

from runwire.credentials import Credential, credential_of_url, read_credential
from runwire.errors import InvalidCredential
from runwire.identities import write_private


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
