"""Web pages of other origins: which of them may call the gateway, and what browsers may show them (CORS, Fetch 3.2).

Rule 1: a request with an `Origin` is answered only when that is the gateway's own or in RUNWIRE_CORS_ORIGINS. Any other
is refused before a key is asked for. Programs send no `Origin`. For `/mcp`, pages of this machine count as listed where
the gateway is called under a loopback name, as those who write clients expect. No page can choose its `Origin`, nor
the `Host` under which it calls: one whose own name was bound to a loopback address (DNS rebinding) names itself twice.
Rule 2: the gateway's own is what the browser calls `same-origin` (`Sec-Fetch-Site`, which no page can set), also behind
a proxy that changes `Host`. Browsers do not send it to plain HTTP addresses of other machines; there the `Origin` must
name the `Host`. `X-Forwarded-Host` does not count: any caller can send it.
Rule 3: a preflight is answered before a key is asked for, since browsers send none with it.
Rule 4: browsers add no cookies for other pages (no `Access-Control-Allow-Credentials`): those send a key by themselves.
The cookie of a login (`auth.guard`) counts for the gateway's own page only: a request that writes names its origin,
which browsers always do, and one that reads names no other. From anybody else it is taken off the request.
Rule 5: the headers stand on every answer, also on problems of the connection, so `http_connection` adds them. A
middleware would miss those, and would be called for each chunk of a stream.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from fastapi import Response

from services.gateway.auth.guard import is_under_loopback
from services.gateway.errors import Forbidden, StartRefused
from services.runtime.http_server import AsgiApp, Receive, Scope, Send

RawHeaders = list[tuple[bytes, bytes]]

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
REQUEST_HEADERS = (
    "Accept",
    "Authorization",
    "Content-Encoding",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Protocol-Version",
    "Mcp-Session-Id",
    "Range",
    "Traceparent",
    "X-Request-Id",
    "X-Trace-Id",
)
"""What the gateway reads of a request, but for what browsers set themselves."""
EXPOSED_HEADERS = (
    "Accept-Ranges",
    "Allow",
    "Content-Disposition",
    "Content-Range",
    "ETag",
    "Location",
    "Mcp-Session-Id",
    "Retry-After",
    "Runwire-Run",
    "WWW-Authenticate",
)
"""What answers tell a page, but for what every page may read (`Content-Type`, `Content-Length`, `Cache-Control`)."""

_MAX_AGE_S = 7200
"""For which a browser remembers a preflight; Chromium takes no more."""
_PREFLIGHT = {
    "Access-Control-Allow-Methods": ", ".join(METHODS),
    "Access-Control-Allow-Headers": ", ".join(REQUEST_HEADERS),
    "Access-Control-Max-Age": str(_MAX_AGE_S),
}
_VARY = (b"vary", b"Origin")
_EXPOSED = (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode())
_REFUSAL = "A web page of another origin may call this gateway only if RUNWIRE_CORS_ORIGINS lists its origin."

_FOR_THIS_MACHINE = b"/mcp"
_ORIGIN = re.compile(r"https?://(?:[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::[1-9][0-9]{0,4})?", re.ASCII)
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$", re.ASCII)
"""Such a host is an IPv4 address for browsers, also as `127.1`, which they send as `127.0.0.1` (WHATWG URL 3.5)."""
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origins:
    """The origins whose pages may call the gateway."""

    def __init__(self, setting: str) -> None:
        """`setting`: exact origins, separated by commas. Raises StartRefused for anything else."""
        self._listed = frozenset(_checked(each).encode() for each in map(str.strip, setting.split(",")) if each)

    def answer_headers(self, path: bytes, request: RawHeaders) -> RawHeaders:
        """Return what every answer to a request for this path, with these headers, says about origins."""
        if not self._is_listed(path, request):
            return [_VARY]
        return [_VARY, (b"access-control-allow-origin", _only(request, b"origin")), _EXPOSED]

    def _is_listed(self, path: bytes, headers: RawHeaders) -> bool:
        if (origin := _only(headers, b"origin")) in self._listed or path != _FOR_THIS_MACHINE:
            return origin in self._listed
        scheme, _, authority = origin.decode("latin-1").partition("://")
        is_of_this_machine = scheme in {"http", "https"} and is_under_loopback(authority)
        return is_of_this_machine and is_under_loopback(_only(headers, b"host").decode("latin-1"))

    def guard(self, app: AsgiApp) -> AsgiApp:
        """Return the application behind these rules: it is not called for preflights, nor for foreign origins."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            headers = scope["headers"]
            names = {name for name, _ in headers}
            if scope["method"] in {"GET", "HEAD"} and b"origin" not in names:
                may_have_cookie = _only(headers, b"sec-fetch-site") in {b"", b"none", b"same-origin"}
            else:
                may_have_cookie = _only(headers, b"origin") not in {b"", b"null"} and _is_own(headers)
            if b"cookie" in names and not may_have_cookie:
                scope = {**scope, "headers": [header for header in headers if header[0] != b"cookie"]}
            if b"origin" not in names or _is_own(headers):
                await app(scope, receive, send)
            elif not self._is_listed(scope["raw_path"], headers):
                await Forbidden(_REFUSAL).response()(scope, receive, send)
            elif scope["method"] == "OPTIONS" and b"access-control-request-method" in names:
                await Response(status_code=204, headers=_PREFLIGHT)(scope, receive, send)
            else:
                await app(scope, receive, send)

        return guarded


def _only(headers: RawHeaders, wanted: bytes) -> bytes:
    """Return the value of a header that stands once, else nothing."""
    found = [value for name, value in headers if name == wanted]
    return found[0] if len(found) == 1 else b""


def _is_own(headers: RawHeaders) -> bool:
    if site := _only(headers, b"sec-fetch-site"):
        return site == b"same-origin"
    scheme, _, authority = _only(headers, b"origin").partition(b"://")
    return scheme in (b"http", b"https") and authority == _only(headers, b"host").lower() != b""


def _checked(value: str) -> str:
    """Return an origin as browsers send it. Raises StartRefused, with the remedy."""
    if (sent := _as_sent(value)) == value:
        return value
    example = "such as https://app.example.org"
    if value.lower() == "null":
        fault, remedy = "which any page can have", f"serve the page over HTTP and name its origin, {example}"
    elif "*" in value:
        fault, remedy = "which is a pattern", f"name each origin in full, {example}"
    elif sent is None:
        fault, remedy = "which is no origin", f"write scheme, host and port, {example} or http://localhost:5173"
    elif "://" not in value:
        fault, remedy = "which has no scheme", f"write {sent}, or {sent.replace('https', 'http', 1)}"
    else:
        fault, remedy = "which no browser sends", f"write {sent}"
    shown = value.rpartition("@")[2]  # Before it may stand a password.
    raise StartRefused(f"RUNWIRE_CORS_ORIGINS names {shown!r}, {fault}: {remedy}.")


def _as_sent(value: str) -> str | None:
    """Return the origin of a URL as browsers send it: lower case, without path and default port. None: it has none."""
    try:
        url = urlsplit(value if "://" in value else f"https://{value}")
        port, host = url.port, _host_as_sent(url.hostname or "")
    except ValueError:
        return None
    origin = f"{url.scheme}://{host}"
    if port is not None and port != _DEFAULT_PORTS.get(url.scheme):
        origin += f":{port}"
    return origin if _ORIGIN.fullmatch(origin) else None


def _host_as_sent(host: str) -> str:
    """Return a host as browsers send it. Raises ValueError for one that they read as another."""
    if ":" in host:
        address = ipaddress.IPv6Address(host)
        if address.ipv4_mapped is not None:
            high, low = divmod(int(address.ipv4_mapped), 1 << 16)
            return f"[::ffff:{high:x}:{low:x}]"  # From Python 3.13 on it has dots, which browsers never send.
        return f"[{address}]"
    if _ENDS_IN_NUMBER.search(host):
        return str(ipaddress.IPv4Address(host))
    encoded = host.encode("idna")
    if not host.isascii() and encoded.decode("idna") != host:
        raise ValueError("Python takes ß for ss, browsers do not")
    return encoded.decode()
