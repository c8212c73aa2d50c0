"""What answers have in common: their addresses as a client reaches them, JSON, compression.

A proxy may serve the gateway under another host and path.

Rule 1: RUNWIRE_PUBLIC_URL is put before every address. Without it, that is the path that a proxy on this machine names
in `X-Forwarded-Prefix`; nobody else's header counts.
Rule 2: a request is the same with and without that path, since some proxies remove it and others do not.

Answers are compressed with gzip, for clients that accept it; event streams never are. Work on large bodies is done in a
thread, so that it does not delay other requests. Starlette's GZipMiddleware would not serve: it compresses in the event
loop, also ranges and images, under the entity tag of the uncompressed bytes, and for a client that refuses gzip with
`q=0`.
"""

import asyncio
import gzip
import ipaddress
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from fastapi import Request, Response
from pydantic import BaseModel

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


_CODING = re.compile(r"(?:^|,)\s*(gzip|\*)\s*(?:;\s*q=([0-9.]+)\s*)?(?=,|$)", re.ASCII | re.IGNORECASE)
_MIN_COMPRESSED_BYTES = 8 << 10
_GZIP_LEVEL = 6
_GZIP_WINDOW_BITS = 31
"""`wbits` of zlib: a window of 32 KiB, in the format of gzip."""


def accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether `Accept-Encoding` allows gzip (RFC 9110 12.5.3)."""
    weights = {coding.lower(): weight for coding, weight in _CODING.findall(headers.get("accept-encoding", ""))}
    weight = weights.get("gzip", weights.get("*"))
    return weight is not None and (weight == "" or bool(weight.strip("0.")))


async def json_response(shown: BaseModel, headers: Mapping[str, str], status: int = 200) -> Response:
    """Return a model as the response to a request with these headers, compressed when it is large.

    No cache stores it.
    """
    body = shown.model_dump_json().encode()
    extra = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) > _MIN_COMPRESSED_BYTES and accepts_gzip(headers):
        body, extra["Content-Encoding"] = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL), "gzip"
    return Response(body, status, extra, media_type="application/json")


def json_answer(model: BaseModel, status: int, headers: dict[str, str] | None = None) -> Response:
    """Return a small answer, which no cache stores."""
    return Response(
        model.model_dump_json(), status, {"Cache-Control": "no-store"} | (headers or {}), "application/json"
    )


async def gzipped(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the compressed form of a body in chunks."""
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    async for chunk in chunks:
        if compressed := await asyncio.to_thread(compressor.compress, chunk):
            yield compressed
    yield compressor.flush()
