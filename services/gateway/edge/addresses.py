"""The addresses in answers, as a client reaches them: a proxy may serve the gateway under another host and path.

Rule 1: RUNWIRE_PUBLIC_URL is put before every address. Without it, that is the path that a proxy on this machine names
in `X-Forwarded-Prefix`; nobody else's header counts.
Rule 2: a request is the same with and without that path, since some proxies remove it and others do not.
"""

import ipaddress
import re
from contextlib import suppress
from urllib.parse import urlsplit

from fastapi import Request

from services.gateway.settings import PATH_PREFIX
from services.runtime.http_server import AsgiApp, Receive, Scope, Send

_KEY = "runwire.public_address"
_PREFIX = re.compile(PATH_PREFIX.encode(), re.ASCII)


class Addresses:
    """What stands before the addresses of a gateway."""

    def __init__(self, public_url: str) -> None:
        self._public_url = public_url
        self._path = urlsplit(public_url).path

    def guard(self, app: AsgiApp) -> AsgiApp:
        """Return the application behind these rules."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            before = self._public_url or _forwarded_prefix(scope)
            path = self._path or before
            if before:
                scope = {**scope, _KEY: before}
            if path and scope["path"].startswith(f"{path}/") and scope["raw_path"].startswith(f"{path}/".encode()):
                scope = {**scope, "path": scope["path"].removeprefix(path), "raw_path": scope["raw_path"][len(path) :]}
            await app(scope, receive, send)

        return answer


def address_of(request: Request, path: str) -> str:
    """Return the address of a route, as the client of this request reaches it."""
    return f"{request.scope.get(_KEY, '')}{path}"


def _forwarded_prefix(scope: Scope) -> str:
    found: list[bytes] = [value.rstrip(b"/") for name, value in scope["headers"] if name == b"x-forwarded-prefix"]
    if len(found) == 1 and scope["client"] and _PREFIX.fullmatch(found[0]):
        with suppress(ValueError):
            if ipaddress.ip_address(scope["client"][0]).is_loopback:
                return found[0].decode()
    return ""
