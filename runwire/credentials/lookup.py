"""Where a program that serves tools finds NATS and its login.

It takes the first of these that is given:

1. a credential file (`--credentials`, `RUNWIRE_NATS_CREDENTIALS`);
2. `RUNWIRE_NATS_URL`, then `NATS_URL`; the login is in the URL, or in `RUNWIRE_NATS_USER` and `RUNWIRE_NATS_PASSWORD`;
3. the data folder of `runwire up`;
4. `nats://127.0.0.1:4222`.

An argument of a function or command comes before all variables.
"""

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runwire.credentials.files import Credential, credential_of_url, read_credential
from runwire.errors import IncompleteLogin, InvalidCredential
from runwire.local.data_folder import data_dir, nats_login, remembered
from runwire.local.embedded_nats import last_port, url_of


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
