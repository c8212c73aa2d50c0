"""Admit requests: find the caller of each, or refuse it.

Rule 1: without keys the gateway listens on loopback only, and every request there belongs to the tenant `default`.
Rule 2: without keys the Host must be a loopback name. A page whose own name was bound to a loopback address (DNS
rebinding) would pass `edge/origins`, which refuses other pages.
Rule 3: a path needs a key unless one of the first three lists below names it, also when its route does not use the
caller.
"""

import ipaddress
import re
from functools import lru_cache

from fastapi import Request
from starlette.datastructures import Headers

from services.gateway.errors import Forbidden, KeyMissing, StartRefused
from services.gateway.settings import GatewaySettings

from .caller import KEYLESS, Caller
from .key_file import KeyFile
from .logins import COOKIE, Logins
from .tickets import Tickets

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
            if not is_loopback(_PORT.sub("", headers.get("host", ""))):
                raise Forbidden(
                    "Without API keys this gateway is reached under a loopback name only, "
                    "such as 127.0.0.1 or localhost."
                )
            return KEYLESS
        given = headers.getlist("authorization")  # A proxy that adds its own leaves no doubt whose request it is.
        scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        caller = self.keys.current.find(key.strip())
        if caller is None or scheme.lower() != "bearer":
            raise KeyMissing
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
