"""Admit requests: find the caller of each, or refuse it.

Rule 1: without keys the gateway listens on loopback only, and every request there belongs to the tenant `default`.
Rule 2: without keys the Host must be a loopback name. A page whose own name was bound to a loopback address (DNS
rebinding) would pass `edge/origins`, which refuses other pages.
Rule 3: a path needs a key unless one of the first three lists below names it, also when its route does not use the
caller.
Rule 4: the keys are those of the settings and those of a file, which is read again once a second, in a thread, and
compared by its bytes: no change is missed, whatever its time says, also one through a rename or a symbolic link.
Rule 5: a file that cannot be used changes nothing: the keys stay those of the last valid one, and `/readyz` says why.
Rule 6: a gateway that started with keys never loses them all, so it never becomes one without keys.
"""

import asyncio
import ipaddress
import os
import re
import stat
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import structlog
from fastapi import Request
from starlette.datastructures import Headers

from services.gateway.errors import Forbidden, KeyMissing, StartRefused
from services.gateway.settings import GatewaySettings

from .caller import KEYLESS, Caller, Keys
from .key_lines import KeyLineInvalid, callers
from .tickets import COOKIE, Logins, Tickets

logger = structlog.get_logger(__name__)

CHECK_INTERVAL_S = 1.0
MAX_FILE_BYTES = 16 << 20
_SETTING, _FILE = "RUNWIRE_API_KEYS", "RUNWIRE_API_KEYS_FILE"


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


OPEN_PATHS = frozenset({"/", "/livez", "/readyz", "/openapi.json", "/docs", "/playground"})
"""Answered without a key: they show nothing of any tenant, and change nothing."""
OPEN_ROUTES = frozenset({"/playground/assets/{name}"})
"""Files of the playground, in the same way."""
SIGNED_ROUTES = frozenset({"/v1/hooks/{schedule_id}"})
"""Their requests are signed (`schedules/webhooks`), and need no key."""
TICKET_ROUTES = frozenset({"/v1/runs/{run_id}/events", "/v1/sessions/{session_id}/events"})
"""A ticket (`auth.tickets`) takes the place of the key."""

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
    keys = KeyFile(settings.api_keys, settings.api_keys_file)
    if not keys.current and not is_loopback(settings.host):
        raise StartRefused(
            f"RUNWIRE_HOST is {settings.host}, which others can reach, and there are no API keys: "
            "set RUNWIRE_API_KEYS_FILE, or listen on 127.0.0.1."
        )
    return Guard(keys)
