"""A real nats-server on loopback that a test may stop, kill and start again."""

import asyncio
import json
import re
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contracts.wire.rights import RELOADER
from runwire.cli.operator import reload_accounts
from runwire.identities import Identities, changed

from .needs import free_port, needs_program
from .server_process import ServerFailed, ServerProcess

CONFIGURATION = """\
listen: "127.0.0.1:{port}"
server_name: "{name}"
max_payload: 8MB
max_pending: 256MB
mappings {{ "discover.>": "$SRV.>" }}
jetstream {{
  store_dir: "{store}"
  sync_interval: {sync}
  max_file_store: 20GB
}}
{extra}
"""

Change = Callable[[Identities], object]
_VIOLATION = re.compile(r'user:(\S+" - (?:Publish|Subscription) Violation - .*)')


class NatsServer(ServerProcess):
    """One nats-server process with JetStream.

    Attributes:
        passwords: of each user; empty for a server without users.
        store: the folder of JetStream's files; it outlives kill, stop and start.
    """

    def __init__(self, folder: Path, *, sync: str = "1s", extra: str = "", identities: Change | bool = False) -> None:
        """Prepare a server that keeps everything in `folder`.

        Args:
            folder: made if it is not there.
            sync: JetStream's `sync_interval`: "always", or a duration such as "1s", with which a killed server keeps as
                much (tests/messaging/test_durability.py).
            extra: further lines for the configuration, as accounts and users.
            identities: the accounts and users of a deployment, changed by this; `folder` holds them.
        """
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "nats.log")
        self._folder = folder
        self.passwords: dict[str, str] = {}
        if identities:
            extra += '\ninclude "nats/accounts.conf"\n'
        self.store = folder / "jetstream"
        self._name = secrets.token_hex(8)
        self._configuration = folder / "nats.conf"
        self._sync = sync
        self._extra = extra
        self._was_ready = False
        if identities:
            self.add_users(identities if callable(identities) else lambda _known: None)

    @property
    def url(self) -> str:
        """Where clients connect, `nats://127.0.0.1:<port>`."""
        return f"nats://127.0.0.1:{self.port}"

    def add_users(self, change: Change) -> None:
        """Change who exists; a server that runs reads its accounts again. `passwords` has all afterwards."""
        with changed(self._folder, any_tool=True) as known:
            change(known)
        self.passwords = known.passwords
        if self.running:
            asyncio.run(reload_accounts(self.url, known.passwords[RELOADER]))

    def login(self, user: str) -> dict[str, str]:
        """User and password, for `nats.connect`; empty for a server without users."""
        return {"user": user, "password": self.passwords[user]} if self.passwords else {}

    def settings(self, user: str) -> dict[str, Any]:
        """The settings with which a service connects as a user."""
        return {"nats_url": self.url, **{f"nats_{name}": value for name, value in self.login(user).items()}}

    def violations(self) -> list[str]:
        """What the server has denied, by its log: user, and what it tried."""
        return [found[1] for found in _VIOLATION.finditer(self.log.read_text(errors="replace"))]

    def start(self) -> None:
        """Start the server and return once it takes clients. Does nothing while it runs.

        Raises:
            ServerFailed: it ended instead.
        """
        if self.running:
            return
        for tries_left in (2, 1, 0):
            self._write_configuration()
            command = [str(needs_program("nats-server")), "-c", str(self._configuration)]
            try:
                self._launch(command, ends_with_thread=False)
            except ServerFailed as failure:
                # Somebody was faster on the port. Only a first start may move: later ones have clients that look for it
                # here.
                if self._was_ready or not tries_left or "address already in use" not in str(failure):
                    raise
                self.port = free_port()
            else:
                self._was_ready = True
                return

    def reload(self, extra: str) -> None:
        """Have the running server read its configuration again, with other further lines."""
        self._extra = extra
        self._write_configuration()
        self._signal(signal.SIGHUP)

    def _write_configuration(self) -> None:
        self._configuration.write_text(
            CONFIGURATION.format(name=self._name, port=self.port, store=self.store, sync=self._sync, extra=self._extra)
        )

    def _answers(self) -> bool:
        """The server greets clients with INFO, and only after JetStream has read its store."""
        try:
            with (
                socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection,
                connection.makefile("rb") as lines,
            ):
                greeting = lines.readline()
        except OSError:
            return False
        if not greeting.startswith(b"INFO "):
            return False
        information = json.loads(greeting.removeprefix(b"INFO "))
        # Another server on this port has another name; ours will then end and say so.
        return bool(information.get("jetstream")) and information["server_name"] == self._name


def admits(port: int, user: str | None = None, password: str | None = None) -> bool:
    """Whether the server on this port lets a client in, by plain protocol: nats-py leaks the socket of a refusal."""
    login = {"user": user, "pass": password} if user is not None else {}
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection, connection.makefile("rb") as lines:
        assert lines.readline().startswith(b"INFO ")
        connection.sendall(
            b"CONNECT " + json.dumps({"verbose": False, "pedantic": False, **login}).encode() + b"\r\nPING\r\n"
        )
        return lines.readline() == b"PONG\r\n"
