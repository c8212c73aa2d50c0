"""The users of one deployment on NATS: their passwords, and for tools and listeners what they are for.

Rule 1: everything is in `identities.json`, which only its owner can read. `nats/accounts.conf` beside it is made from
it and from `contracts.wire.rights`, and is what nats-server reads.
Rule 2: both files are replaced as a whole, under a lock, so that two commands at a time lose nothing.
Rule 3: the same names give the same user and password until it is revoked.

The three accounts are joined by seven lines, whatever the number of tools and tenants: calls and discovery go from CORE
to TOOLS, answers come back; live records and the last record of a log go to LISTENERS.
"""

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from contracts.wire import rights
from contracts.wire.names import checked_id, checked_tenant, checked_tool
from contracts.wire.rights import LOCAL_TOOLS, Rights
from runwire.errors import IdentitiesUnreadable, UnknownIdentity

_ACCOUNTS = """\
# Written by `runwire credentials`; changes are overwritten.
accounts {{
  CORE {{
    jetstream: enabled
    users: [
{CORE}    ]
    exports: [
      {{ stream: "tool.>", accounts: [TOOLS] }}
      {{ stream: "discover.>", accounts: [TOOLS] }}
      {{ stream: "run.>", accounts: [LISTENERS] }}
      {{ stream: "session.>", accounts: [LISTENERS] }}
      {{ service: "$JS.API.DIRECT.GET.RUNS.emit.*.*.log", response: singleton, accounts: [LISTENERS] }}
    ]
    imports: [
      {{ stream: {{ account: TOOLS, subject: "answer.>" }} }}
      {{ stream: {{ account: TOOLS, subject: "hello.>" }} }}
    ]
  }}
  TOOLS {{
    limits {{ {tools_limits} }}
    users: [
{TOOLS}    ]
    exports: [
      {{ stream: "answer.>", accounts: [CORE] }}
      {{ stream: "hello.>", accounts: [CORE] }}
    ]
    imports: [
      {{ stream: {{ account: CORE, subject: "tool.>" }} }}
      {{ stream: {{ account: CORE, subject: "discover.>" }}, to: "$SRV.>" }}
    ]
  }}
  LISTENERS {{
    limits {{ {listeners_limits} }}
    users: [
{LISTENERS}    ]
    imports: [
      {{ stream: {{ account: CORE, subject: "run.>" }} }}
      {{ stream: {{ account: CORE, subject: "session.>" }} }}
      {{ service: {{ account: CORE, subject: "$JS.API.DIRECT.GET.RUNS.emit.*.*.log" }} }}
    ]
  }}
  SYS {{
    users: [
{SYS}    ]
  }}
}}
system_account: SYS
"""
TOOLS_LIMITS: Mapping[str, int | str] = {"max_connections": 1024, "max_subscriptions": 4096, "max_payload": "8MB"}
LISTENERS_LIMITS: Mapping[str, int | str] = {"max_connections": 4096, "max_subscriptions": 1024, "max_payload": "64KB"}
"""Connections of the account, subscriptions of one connection, and the largest message that it may send. So the
programs there cannot use up the server, which the services use too. A tool has about twenty subscriptions."""


def accounts_block(rights: Mapping[str, Rights], passwords: Mapping[str, str]) -> str:
    """Return the contents of `accounts.conf`: accounts, users with passwords and rights, and what accounts share."""
    users = {"CORE": "", "TOOLS": "", "LISTENERS": "", "SYS": ""}
    for user, its_rights in rights.items():
        lists = ""
        for verb, subjects in (("publish", its_rights.publish), ("subscribe", its_rights.subscribe)):
            lines = "".join(f"          {json.dumps(each)}\n" for each in subjects)
            lists += f"        {verb}: [\n{lines}        ]\n"
        head = f"      {{ user: {json.dumps(user)}, password: {json.dumps(passwords[user])}, permissions: {{\n"
        users[its_rights.account] += f"{head}{lists}      }} }}\n"
    tools, listeners = (
        ", ".join(f"{name}: {value}" for name, value in limits.items()) for limits in (TOOLS_LIMITS, LISTENERS_LIMITS)
    )
    return _ACCOUNTS.format(tools_limits=tools, listeners_limits=listeners, **users)


if sys.platform != "win32":
    import fcntl

_PASSWORD_BYTES = 32


@dataclass
class Identities:
    """Who exists.

    `tools`: user -> the names of its tools; `["*"]`: any. `listeners`: user -> tenant and run, or None for all runs.
    """

    passwords: dict[str, str] = field(default_factory=dict)
    tools: dict[str, list[str]] = field(default_factory=dict)
    listeners: dict[str, tuple[str, str | None]] = field(default_factory=dict)

    def rights(self) -> dict[str, Rights]:
        """The rights of every user."""
        tools = {
            user: rights.of_local_tools() if names == ["*"] else rights.of_tool(*names)
            for user, names in self.tools.items()
        }
        listeners = {user: rights.of_listener(user, *where) for user, where in self.listeners.items()}
        return {**tools, **listeners, **rights.of_platform()}

    def add_tools(self, *names: str) -> str:
        """Return the user for the tools of these names. Raises InvalidName."""
        names = tuple(dict.fromkeys(map(checked_tool, names)))
        user = f"tool_{names[0]}" if len(names) == 1 else f"tools_{'.'.join(names)}"
        if user in rights.of_platform():
            user = f"tools_{names[0]}"  # `tool_runner` is a service, and its password is not for a tool `runner`.
        self.tools[user] = list(names)
        self._complete()
        return user

    def add_listener(self, tenant: str, run: str | None = None) -> str:
        """Return the user who receives what happens to a tenant's runs, or to one. Raises InvalidName."""
        user = (
            f"listener_{checked_tenant(tenant)}" if run is None else f"run_{checked_tenant(tenant)}_{checked_id(run)}"
        )
        self.listeners[user] = (tenant, run)
        self._complete()
        return user

    def revoke(self, user: str) -> str:
        """Remove a user of a tool or a listener, and return it. Raises UnknownIdentity."""
        if user == LOCAL_TOOLS or (self.tools.pop(user, None) is None and self.listeners.pop(user, None) is None):
            raise UnknownIdentity(
                f"no tool or listener has the credential {user!r}; `runwire credentials ls` lists them"
            )
        self.passwords.pop(user, None)
        return user

    def _complete(self) -> None:
        for user in self.rights():
            self.passwords.setdefault(user, secrets.token_urlsafe(_PASSWORD_BYTES))


@contextlib.contextmanager
def changed(folder: Path, *, any_tool: bool = False) -> Iterator[Identities]:
    """Read the identities of a folder, or make the first ones; write both files when the context ends without an error.

    `any_tool`: there is a user who may serve tools of any name, for a machine where everything runs as one person.
    Raises IdentitiesUnreadable.
    """
    (folder / "nats").mkdir(parents=True, exist_ok=True)
    with _locked(folder / "identities.lock"):
        known = read(folder)
        if any_tool:
            known.tools.setdefault(LOCAL_TOOLS, ["*"])
        known._complete()  # noqa: SLF001, of this module
        yield known
        known._complete()  # noqa: SLF001
        write_private(identities_file(folder), json.dumps(asdict(known), indent=1))
        write_private(accounts_file(folder), accounts_block(known.rights(), known.passwords))


@contextlib.contextmanager
def one_reload(folder: Path) -> Iterator[None]:
    """Wait until no other command has the server read the accounts, as it refuses logins meanwhile."""
    with _locked(folder / "reload.lock"):
        yield


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as lock:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(folder: Path) -> Identities:
    """The identities of a folder; none without the file. Raises IdentitiesUnreadable."""
    file = identities_file(folder)
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
        listeners = {user: (str(tenant), run) for user, (tenant, run) in found["listeners"].items()}
        return Identities(
            dict(found["passwords"]), {user: list(names) for user, names in found["tools"].items()}, listeners
        )
    except FileNotFoundError:
        return Identities()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IdentitiesUnreadable(
            f"{file} cannot be read ({type(error).__name__}); restore it, or remove it and make every credential anew"
        ) from error


def identities_file(folder: Path) -> Path:
    """Users and passwords."""
    return folder / "identities.json"


def accounts_file(folder: Path) -> Path:
    """What nats-server includes."""
    return folder / "nats" / "accounts.conf"


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, also in place of one with other permissions."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)
    fresh.replace(file)
