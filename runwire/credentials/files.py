"""Credential files: where NATS is, and with which user and password. JSON in the form of the `nats` CLI's contexts."""

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from runwire.errors import CredentialsUnreadable


@dataclass(frozen=True, slots=True)
class Credential:
    """A user of NATS. `ca`: path of the certificate with which the server's is checked; None: the machine's own."""

    url: str
    user: str
    password: str
    ca: str | None = None
    description: str = ""

    def as_json(self) -> str:
        """The contents of a credential file."""
        fields = {name: getattr(self, name) for name in ("description", "url", "user", "password", "ca")}
        return json.dumps({name: value for name, value in fields.items() if value}, indent=2) + "\n"

    def as_url(self) -> str:
        """The address with user and password, for `NATS_URL`."""
        scheme, _, rest = self.url.rpartition("://")
        return f"{scheme or 'nats'}://{quote(self.user)}:{quote(self.password)}@{rest}"


def read_credential(file: Path) -> Credential:
    """Read a credential file. Raises CredentialsUnreadable, without naming the password."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CredentialsUnreadable(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CredentialsUnreadable(f"{file}: is not JSON; make it with `runwire credentials tool NAME`") from error
    if not isinstance(found, dict) or not all(
        isinstance(found.get(name), str) and found[name] for name in ("url", "user", "password")
    ):
        raise CredentialsUnreadable(f"{file}: needs `url`, `user` and `password`")
    if not isinstance(ca := found.get("ca") or None, str | None):
        raise CredentialsUnreadable(f"{file}: `ca` must be a path")
    return Credential(found["url"], found["user"], found["password"], ca)
