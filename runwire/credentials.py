"""Where a program that serves tools finds NATS and its login.

It takes the first of these that is given:

1. a credential file (`--credentials`, `RUNWIRE_NATS_CREDENTIALS`);
2. `RUNWIRE_NATS_URL`, then `NATS_URL`; the login is in the URL, or in `RUNWIRE_NATS_USER` and `RUNWIRE_NATS_PASSWORD`;
3. the data folder of `runwire up`;
4. `nats://127.0.0.1:4222`.

An argument of a function or command comes before all variables.

A credential file has the address of NATS and one login, in the form of a context of the `nats` command:

| field | meaning |
| --- | --- |
| `url` | `nats://host:port`, or `tls://` to demand TLS; several servers are separated by commas |
| `user`, `password` | the login |
| `ca` | the certificate authority of the server, a PEM file; it demands TLS. Relative to the folder of this file |
| `description` | for people |

No error text repeats what is in a file or URL.
"""

import json
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from runwire.errors import IncompleteLogin, InvalidCredential
from runwire.local.data_folder import data_dir, nats_login, remembered
from runwire.local.embedded_nats import last_port, url_of


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


@dataclass(frozen=True, slots=True)
class Login:
    """How to reach NATS.

    `credential` is called at every attempt to connect: the login may change while a program waits. `file` is where it
    is from, if it is from a file. `ca` is a path; with one, or a URL `tls://`, TLS is demanded.
    """

    url: str
    credential: Callable[[], Credential]
    ca: str | None = None
    file: Path | None = None

    @property
    def servers(self) -> list[str]:
        """The URL of each server, without a login."""
        return self.url.split(",")

    @property
    def address(self) -> str:
        """The servers as they are named to people."""
        return ", ".join(server.rpartition("://")[2] for server in self.servers)

    @property
    def demands_tls(self) -> bool:
        """Whether a connection without TLS is refused."""
        return any(server.startswith("tls://") or (self.ca and server.startswith("nats://")) for server in self.servers)

    def ssl_context(self) -> ssl.SSLContext | None:
        """The authorities to trust; None: those of the machine. Raises InvalidCredential."""
        if not self.ca:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            reason = "is not a PEM file" if isinstance(error, ssl.SSLError) else f"cannot be read: {error.strerror}"
            raise InvalidCredential(f"the certificate authority {self.ca} {reason}") from None


def find_login(
    url: str | None = None,
    credentials: str | Path | None = None,
    user: str | None = None,
    password: str | None = None,
) -> Login:
    """Find NATS and the login.

    With both `credentials` and `url` the login of the file is used at that address. Raises InvalidCredential.
    """
    environment = os.environ.get
    file = credentials or (None if url else environment("RUNWIRE_NATS_CREDENTIALS"))
    if file:
        return _of_file(Path(file), url)
    ca = environment("RUNWIRE_NATS_CA") or None
    data = data_dir()
    known = url or environment("RUNWIRE_NATS_URL") or environment("NATS_URL")
    found = credential_of_url(known or remembered(data).get("nats_url") or url_of(last_port(data)))
    user = user or environment("RUNWIRE_NATS_USER") or found.user
    password = password or environment("RUNWIRE_NATS_PASSWORD") or found.password
    if bool(user) != bool(password):
        raise IncompleteLogin("RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD are set together, or neither")
    if user and password:
        given = Credential(found.url, user, password)
        return Login(found.url, lambda: given, ca)
    # `runwire up` may start later.
    return Login(found.url, lambda: Credential(found.url, **nats_login(data, found.url)), ca)


def _of_file(file: Path, url: str | None) -> Login:
    first = read_credential(file)

    def credential() -> Credential:
        try:
            return read_credential(file)
        except InvalidCredential:  # It is being replaced.
            return first

    address = credential_of_url(url or first.url).url
    return Login(address, credential, first.ca or os.environ.get("RUNWIRE_NATS_CA"), file)
