"""What a caller says of a request in its headers: its idempotency key, and ids of the request and its trace.

The ids are for the caller's own logs, and proxies set such headers too. So one that cannot be used is ignored, as an
invalid `traceparent` is, and the request is accepted.
"""

import re
from typing import NamedTuple

from fastapi import Request

from services.gateway.errors import InvalidInput

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII
)
_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)
_REFUSED = re.compile(r"q=0(\.0*)?", re.ASCII)
_ID = re.compile(r"[!-~]{1,200}", re.ASCII)
REQUEST_ID_HEADER, TRACE_ID_HEADER = "X-Request-Id", "X-Trace-Id"


class RequestIds(NamedTuple):
    """The ids of a request; None: its caller gave none that can be used."""

    request_id: str | None = None
    trace_id: str | None = None


def request_ids(request: Request) -> RequestIds:
    """Return the ids in the headers. The trace is that of `traceparent` (W3C Trace Context), else `X-Trace-Id`."""
    traced = _TRACEPARENT.fullmatch(request.headers.get("traceparent", ""))
    return RequestIds(_id(request, REQUEST_ID_HEADER), traced[1] if traced else _id(request, TRACE_ID_HEADER))


def _id(request: Request, header: str) -> str | None:
    """Return the value of a header that was sent once, if it is 1 to 200 visible ASCII characters."""
    values = request.headers.getlist(header)
    return values[0] if len(values) == 1 and _ID.fullmatch(values[0]) else None


def accepts_events(request: Request) -> bool:
    """Return whether `Accept` names event streams, and not with `q=0` (RFC 9110 12.5.1)."""
    for each in ",".join(request.headers.getlist("accept")).lower().split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        if kind == "text/event-stream":
            return not any(_REFUSED.fullmatch(parameter) for parameter in parameters)
    return False


def idempotency_key(request: Request) -> str | None:
    """Return the caller's key, None without one. Raises InvalidInput."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        raise InvalidInput("Idempotency-Key", "must be sent once, as 1 to 255 visible ASCII characters")
    return values[0]
