"""What the routes of all nouns share: the caller and its rights, queries and headers, addresses, answers, OpenAPI.

The ids in headers are for the caller's own logs, and proxies set such headers too. So one that cannot be used is
ignored, as an invalid `traceparent` is, and the request is accepted.

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
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import Match

from services.gateway.auth.caller import Caller, Right
from services.gateway.errors import InvalidInput
from services.gateway.settings import PATH_PREFIX
from services.runtime.http_server import AsgiApp, Receive, Scope, Send

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII
)
_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)
_REFUSED = re.compile(r"q=0(\.0*)?", re.ASCII)
_ID = re.compile(r"[!-~]{1,200}", re.ASCII)
REQUEST_ID_HEADER, TRACE_ID_HEADER = "X-Request-Id", "X-Trace-Id"
RUN_HEADER = "Runwire-Run"
"""Of an answer that starts or streams a run: the run's id."""
_ADDRESS = "runwire.public_address"
_PREFIX = re.compile(PATH_PREFIX.encode(), re.ASCII)
_CODING = re.compile(r"(?:^|,)\s*(gzip|\*)\s*(?:;\s*q=([0-9.]+)\s*)?(?=,|$)", re.ASCII | re.IGNORECASE)
_MIN_COMPRESSED_BYTES = 8 << 10
_GZIP_LEVEL = 6
_GZIP_WINDOW_BITS = 31
"""`wbits` of zlib: a window of 32 KiB, in the format of gzip."""


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


BODY_MODELS: dict[str, type[BaseModel]] = {}
"""The bodies that `body_of` describes: routes read them by themselves, so FastAPI does not know them."""

Filter = Annotated[str | None, Query(min_length=1, max_length=200)]
"""A text that a field of what is listed must be equal to; None: any."""

Form = Literal["values", "refs"]
"""How artifacts appear in a payload: as JSON values, or as references, as they are in the log."""


async def _caller(request: Request) -> Caller:
    # A coroutine: FastAPI runs plain functions in a thread, and each request would wait for one.
    caller: Caller = request.state.caller
    return caller


RequestCaller = Annotated[Caller, Depends(_caller)]
"""Who sent the request, as the guard has found (`auth.guard`)."""


def needs(right: Right) -> Any:
    """Return the dependency of a route that only callers with this right may use."""

    async def check(caller: RequestCaller) -> None:
        caller.require(right)

    return Depends(check)


async def _prepare(request: Request, response: Response) -> None:
    """Let no cache store the answer. Raises InvalidInput for unknown query parameters, which FastAPI would ignore."""
    response.headers["Cache-Control"] = "no-store"
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    if unknown := request.query_params.keys() - known:
        raise InvalidInput.unknown(sorted(unknown))


def new_router(tag: str = "", route_class: type[APIRoute] = APIRoute) -> APIRouter:
    """Return a router whose routes refuse unknown query parameters.

    `tag` groups them in the OpenAPI document; without one, each route names its own.
    """
    return APIRouter(dependencies=[Depends(_prepare)], tags=[tag] if tag else None, route_class=route_class)


class SessionRoute(APIRoute):
    """A route with the id of a session in its address, which is any text: also one with slashes."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the address as it was sent; its parts are decoded afterwards."""
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        match, child = super().matches({**scope, "path": raw.partition(b"?")[0].decode("latin-1")})
        given = child.get("path_params", {})
        return match, {**child, "path_params": {**given, **{name: unquote(given[name]) for name in given}}}


def body_of(
    model: type[BaseModel], *, keyed: bool = False, traced: bool = False, optional: bool = False
) -> dict[str, Any]:
    """Describe for OpenAPI a JSON body that the gateway reads itself.

    `keyed`: with an `Idempotency-Key`. `traced`: with the ids of the request and its trace.
    """
    BODY_MODELS[model.__name__] = model
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"}}
    ids = [
        {"name": name, "in": "header", "schema": {"type": "string"}} for name in (REQUEST_ID_HEADER, TRACE_ID_HEADER)
    ]
    parameters = ([key] if keyed else []) + (ids if traced else [])
    return {"requestBody": {"required": not optional, "content": content}, "parameters": parameters}


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
                scope = {**scope, _ADDRESS: before}
            if path and scope["path"].startswith(f"{path}/") and scope["raw_path"].startswith(f"{path}/".encode()):
                scope = {**scope, "path": scope["path"].removeprefix(path), "raw_path": scope["raw_path"][len(path) :]}
            await app(scope, receive, send)

        return answer


def address_of(request: Request, path: str) -> str:
    """Return the address of a route, as the client of this request reaches it."""
    return f"{request.scope.get(_ADDRESS, '')}{path}"


def _forwarded_prefix(scope: Scope) -> str:
    found: list[bytes] = [value.rstrip(b"/") for name, value in scope["headers"] if name == b"x-forwarded-prefix"]
    if len(found) == 1 and scope["client"] and _PREFIX.fullmatch(found[0]):
        with suppress(ValueError):
            if ipaddress.ip_address(scope["client"][0]).is_loopback:
                return found[0].decode()
    return ""


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
