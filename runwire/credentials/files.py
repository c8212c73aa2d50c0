"""Credential files: the address of NATS, and one login. JSON in the form of a context of the `nats` command.

| field | meaning |
| --- | --- |
| `url` | `nats://host:port`, or `tls://` to demand TLS; several servers are separated by commas |
| `user`, `password` | the login |
| `ca` | the certificate authority of the server, a PEM file; it demands TLS. Relative to the folder of this file |
| `description` | for people |

No error text repeats what is in a file or URL.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from runwire.errors import InvalidCredential


@dataclass(frozen=True, slots=True)
class Credential:
    """How to reach NATS and log in there. `ca`: path of the server's certificate authority; None: the machine's own."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
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
    """Read a credential file. Raises InvalidCredential."""
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidCredential(f"the credential file {file} cannot be read: {error.strerror}") from None
    except ValueError:
        remedy = "`runwire credentials tool NAME --out FILE` makes one"
        raise InvalidCredential(f"the credential file {file} is not JSON; {remedy}") from None
    names = Credential.__dataclass_fields__
    given = {name: found[name] for name in names if found.get(name)} if isinstance(found, dict) else {}
    wrong = [name for name, value in given.items() if not isinstance(value, str)]
    missing = [name for name in ("url", "user", "password") if name not in given]
    if wrong or missing:
        raise InvalidCredential(f"the credential file {file} has no text as {', '.join(wrong or missing)}")
    credential = Credential(**given)
    ca = credential.ca and str(file.parent / Path(credential.ca).expanduser())
    return replace(credential, ca=ca)


def credential_of_url(url: str) -> Credential:
    """Take the login out of a URL, or out of the first of several separated by commas. Raises InvalidCredential."""
    servers = [part.strip() for part in url.split(",")]
    addresses = []
    for server in servers:
        scheme, _, rest = server.rpartition("://")
        login, _, address = rest.rpartition("@")
        try:
            valid = urlsplit(f"//{address}").hostname and urlsplit(f"//{address}").port != 0
        except ValueError:
            valid = False
        if not valid or scheme not in {"", "nats", "tls", "ws", "wss"} or (login and ":" not in login):
            raise InvalidCredential("the URL of NATS must have the form nats://[user:password@]host:port, or tls://")
        addresses.append(f"{scheme or 'nats'}://{address}")
    login = servers[0].rpartition("://")[2].rpartition("@")[0]
    user, _, password = login.partition(":")
    return Credential(",".join(addresses), unquote(user), unquote(password))
