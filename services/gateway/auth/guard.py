"""Admit requests: find the caller of each, by its key, ticket or login, or refuse it.

Rule 1: without keys the gateway listens on loopback only, and every request there belongs to the tenant `default`.
Rule 2: without keys the Host must be a loopback name. A page whose own name was bound to a loopback address (DNS
rebinding) would pass `edge/origins`, which refuses other pages.
Rule 3: a path needs a key unless one of the first three lists below names it, also when its route does not use the
caller.
Rule 4: the keys are those of the settings and those of a file, which is read again once a second, in a thread, and
compared by its bytes: no change is missed, whatever its time says, also one through a rename or a symbolic link.
Rule 5: a file that cannot be used changes nothing: the keys stay those of the last valid one, and `/readyz` says why.
Rule 6: a gateway that started with keys never loses them all, so it never becomes one without keys.

A ticket opens one event stream without a key, for pages whose `EventSource` cannot send one. It is

    <base64url of the JSON [tenant, key's name, end in Unix ms]>.<base64url of an HMAC-SHA-256>

Rule 7: the HMAC covers what the ticket says, the path that it opens, and the digest of the key that asked for it. So a
ticket opens nothing else, and is dead with its key. Its secret is the tenant's, in the bucket of runs, so that every
gateway knows the tickets of the others. A ticket is neither stored nor logged.

A login is a cookie of the playground, so that the page needs not keep the key: 32 random bytes, HttpOnly and
SameSite=Strict. It is found only in requests of the gateway's own pages (`edge/origins`).

Rule 8: its entry is found by its digest, names the key, and proves by an HMAC that it was made with this very key. It
ends after 12 hours, with its key, and when its owner signs out.
"""

import asyncio
import base64
import hmac
import ipaddress
import json
import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import structlog
from fastapi import Request
from starlette.datastructures import Headers

from contracts.runs.requests import LoginEntry, TicketSecret
from contracts.wire import keys
from contracts.wire.names import unix_ms
from services.gateway.errors import Forbidden, KeyMissing, StartRefused, TicketExpired
from services.gateway.settings import GatewaySettings
from services.messaging.kv import Bucket

from .caller import KEYLESS, Caller, Keys
from .key_lines import KeyLineInvalid, callers

logger = structlog.get_logger(__name__)

CHECK_INTERVAL_S = 1.0
MAX_FILE_BYTES = 16 << 20
_SETTING, _FILE = "RUNWIRE_API_KEYS", "RUNWIRE_API_KEYS_FILE"
COOKIE = "runwire_login"
LOGIN_S = 12 * 3600


class KeyFile:
    """All keys. `current` is replaced as a whole when the file has changed."""

    def __init__(self, text: str, path: Path | None) -> None:
        """`text`: the keys of the settings. `path`: the file, if there is one. Raises StartRefused."""
        self._path = path
        self._content: bytes | None = None
        self._problem: str | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when `current` was replaced."""
        try:
            self._settings = callers(text, _SETTING)
            self.current = Keys(self._settings) if path is None else self._read(path)
        except KeyLineInvalid as error:
            raise StartRefused(str(error)) from error

    def problem(self) -> str | None:
        """Return why the file cannot be used as it is now, as a sentence for `/readyz`; None: it can."""
        return self._problem

    async def watch(self) -> None:
        """Follow the changes of the file, until cancelled."""
        while self._path is not None:
            await asyncio.sleep(CHECK_INTERVAL_S)
            before = self.current
            await asyncio.to_thread(self.check, self._path)
            if self.current is not before:
                self.on_change()

    def check(self, path: Path) -> None:
        """Take the keys of a file that has changed, or note why that is not possible."""
        content, problem = self._content, None
        try:
            current = self._read(path)
        except KeyLineInvalid as error:
            problem = str(error)
        else:
            if self._content != content:
                self.current = current
                logger.info("api_keys_reloaded", keys=len(current))
        if problem != self._problem:
            self._problem = problem
            if problem is not None:
                logger.warning("api_keys_not_reloaded", reason=problem)

    def _read(self, path: Path) -> Keys:
        """Return all keys. An unchanged file is not parsed again. Raises KeyLineInvalid."""
        try:
            content = _content(path)
            if content == self._content:
                return self.current
            found = callers(content.decode("utf-8-sig"), _FILE)
        except OSError as error:
            raise KeyLineInvalid(f"{_FILE} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise KeyLineInvalid(f"{_FILE} is not UTF-8, from byte {error.start} on.") from error
        if not found:
            raise KeyLineInvalid(f"{_FILE} holds no key.")
        all_keys = self._settings | found
        if len({(caller.tenant, caller.key_id) for caller in all_keys.values()}) < len(self._settings) + len(found):
            raise KeyLineInvalid(f"{_FILE} holds a key, or the name of one, that stands in {_SETTING} too.")
        self._content = content
        return Keys(all_keys)


def _content(path: Path) -> bytes:
    # Without O_NONBLOCK, opening a named pipe would wait for its writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise KeyLineInvalid(f"{_FILE} is not a regular file.")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise KeyLineInvalid(f"{_FILE} has more than {MAX_FILE_BYTES} bytes.")
    return content


Named = Callable[[str, str], Caller | None]
"""Returns the caller of a tenant whose key has this name."""


class Tickets:
    """Makes and reads tickets."""

    def __init__(self, entries: Bucket, named: Named) -> None:
        self._entries, self._named = entries, named
        self._secrets: dict[str, bytes] = {}
        """By tenant."""

    async def new(self, caller: Caller, path: str, ends_at: int) -> str:
        """Return a ticket for what the caller may read at a path, until then (Unix ms). Raises BusError."""
        said = _encoded(json.dumps([caller.tenant, caller.key_id, ends_at]).encode())
        return f"{said}.{await self._signature(caller, said, path)}"

    async def caller(self, ticket: str, path: str) -> Caller:
        """Return who asked for a ticket of this path. Raises KeyMissing, TicketExpired and BusError."""
        said, _, signature = ticket.partition(".")
        try:
            tenant, name, ends_at = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
            caller = self._named(tenant, name)
        except (ValueError, TypeError, RecursionError):
            raise KeyMissing from None
        if caller is None or not hmac.compare_digest(
            signature.encode(), (await self._signature(caller, said, path)).encode()
        ):
            raise KeyMissing
        if unix_ms() >= ends_at:
            raise TicketExpired
        return replace(caller, ends_at=ends_at)

    async def _signature(self, caller: Caller, said: str, path: str) -> str:
        if (secret := self._secrets.get(caller.tenant)) is None:
            made = TicketSecret(secret=secrets.token_hex(32))
            stored = await self._entries.get_or_make(keys.ticket_secret(caller.tenant), made)
            secret = self._secrets[caller.tenant] = bytes.fromhex(stored.secret)
        return _encoded(hmac.digest(secret, f"{said}\n{caller.digest}\n{path}".encode(), "sha256"))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Logins:
    """Makes, opens and ends them."""

    def __init__(self, entries: Bucket, named: Named) -> None:
        self._entries, self._named = entries, named

    async def new(self, caller: Caller) -> str:
        """Return the cookie's value. Raises BusError."""
        login = secrets.token_urlsafe(32)
        entry = LoginEntry(
            tenant=caller.tenant, key_id=caller.key_id, proof=_proof(login, caller), ends_at=unix_ms() + LOGIN_S * 1000
        )
        await self._entries.put(keys.login_key(login), entry, ttl_s=LOGIN_S)
        return login

    async def caller(self, login: str) -> Caller:
        """Return who signed in. Raises KeyMissing and BusError."""
        entry = (await self._entries.get(keys.login_key(login))).parsed(LoginEntry)
        caller = self._named(entry.tenant, entry.key_id) if entry else None
        if entry is None or caller is None or unix_ms() >= entry.ends_at:
            raise KeyMissing
        if not hmac.compare_digest(entry.proof, _proof(login, caller)):
            raise KeyMissing
        return replace(caller, ends_at=entry.ends_at)

    async def end(self, login: str) -> None:
        """End a login, if there is one. Raises BusError."""
        await self._entries.delete(keys.login_key(login))


def _proof(login: str, caller: Caller) -> str:
    return hmac.digest(login.encode(), caller.digest.encode(), "sha256").hex()


OPEN_PATHS = frozenset({"/", "/livez", "/readyz", "/openapi.json", "/docs", "/playground"})
"""Answered without a key: they show nothing of any tenant, and change nothing."""
OPEN_ROUTES = frozenset({"/playground/assets/{name}"})
"""Files of the playground, in the same way."""
SIGNED_ROUTES = frozenset({"/v1/hooks/{schedule_id}"})
"""Their requests are signed (`schedules`), and need no key."""
TICKET_ROUTES = frozenset({"/v1/runs/{run_id}/events", "/v1/sessions/{session_id}/events"})
"""A ticket takes the place of the key."""

_PORT = re.compile(r":[0-9]*$", re.ASCII)


@lru_cache(maxsize=16)
def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`: `localhost`, an address of 127.0.0.0/8, or ::1."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_under_loopback(authority: str) -> bool:
    """Return whether a host with its port, as in `Host` or an origin, is this machine's alone."""
    return is_loopback(_PORT.sub("", authority))


class Guard:
    """Finds the caller of a request, or refuses the request."""

    def __init__(self, keys: KeyFile) -> None:
        self.keys = keys
        self._is_keyless = not keys.current

    async def check(self, request: Request) -> None:
        """Put the caller into `request.state`, unless the path is open.

        Raises KeyMissing, Forbidden, TicketExpired and BusError.
        """
        route = request.scope["route"].path
        if request.scope["path"] in OPEN_PATHS or route in OPEN_ROUTES | SIGNED_ROUTES:
            return
        ticket = request.query_params.get("ticket") if route in TICKET_ROUTES else None
        login = request.cookies.get(COOKIE) if "authorization" not in request.headers else None
        if self._is_keyless or (ticket is None and login is None):
            request.state.caller = self.caller_of(request.headers)
        elif ticket is None and login is not None:
            logins: Logins = request.app.state.parts.logins
            request.state.caller = await logins.caller(login)
        if ticket is not None:
            tickets: Tickets = request.app.state.parts.tickets
            request.state.caller = await tickets.caller(ticket, route.format(**request.path_params))

    def admits(self, caller: Caller) -> bool:
        """Return whether the key of a caller is still there, with the same rights and limits."""
        return self._is_keyless or caller in self.keys.current

    def named(self, tenant: str, key_id: str) -> Caller | None:
        """Return the caller whose key has this name; without keys, the one who needs none."""
        if self._is_keyless:
            return KEYLESS if (tenant, key_id) == (KEYLESS.tenant, KEYLESS.key_id) else None
        return self.keys.current.named(tenant, key_id)

    def caller_of(self, headers: Headers) -> Caller:
        """Return the caller. Raises KeyMissing or Forbidden."""
        if self._is_keyless:
            if not is_under_loopback(headers.get("host", "")):
                raise Forbidden(
                    "Without API keys this gateway is reached under a loopback name only, "
                    "such as 127.0.0.1 or localhost."
                )
            return KEYLESS
        given = headers.getlist("authorization")  # A proxy that adds its own leaves no doubt whose request it is.
        scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        caller, is_bearer = self.keys.current.find(key.strip()), scheme.lower() == "bearer"
        if caller is None or not is_bearer:
            raise KeyMissing("The API key is none of this gateway's: send another one." if is_bearer and key else None)
        return caller


def build_guard(settings: GatewaySettings) -> Guard:
    """Read the keys. Raises StartRefused for an invalid line, and for a public address without keys."""
    key_file = KeyFile(settings.api_keys, settings.api_keys_file)
    if not key_file.current and not is_loopback(settings.host):
        raise StartRefused(
            f"RUNWIRE_HOST is {settings.host}, which others can reach, and there are no API keys: "
            "set RUNWIRE_API_KEYS_FILE, or listen on 127.0.0.1."
        )
    return Guard(key_file)
