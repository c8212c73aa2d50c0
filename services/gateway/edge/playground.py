"""The playground: files of a web page, built from `web/` and served as they are, and the login of its user.

Rule 1: they are answered without a key, since they show nothing of any tenant. What the page shows, it asks for as any
other client does.
Rule 2: the page runs its own scripts only, loads nothing from another origin, is framed by none, and turns no text into
HTML but by its sanitiser (`trusted-types`).
Rule 3: names of assets hold a digest of what is in them, so browsers keep them; they ask for the page each time.
Rule 4: who shows an API key gets a cookie in its place (`auth.guard`), on the gateway's own page alone.
"""

import asyncio
import gzip
import mimetypes
from functools import cache
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, Field

from services.gateway.auth.caller import Right
from services.gateway.auth.guard import COOKIE, LOGIN_S
from services.gateway.edge.routing import RequestCaller, accepts_gzip, address_of, new_router
from services.gateway.errors import Forbidden, KeyMissing, NotFound
from services.gateway.parts import GatewayParts

PAGE = "/playground"
ASSETS = "/playground/assets/{name}"

_FILES = Path(__file__).parent.parent / "playground"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types default dompurify svelte-trusted-html"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
_TYPES = {".js": "text/javascript"}
"""What a machine's own table of types may say otherwise."""

router = APIRouter()
logins = new_router("login")


class Login(BaseModel):
    """What the key of a request may do; null: there is no such limit."""

    tenant: str
    key_id: str = Field(description="empty: the gateway has no keys")
    rights: Annotated[list[Right], BeforeValidator(sorted)]
    user_id: str | None
    role: str
    tools: list[str] | None
    agents: list[str] | None
    ends_at: int | None = Field(description="Unix ms, of a login; null: the request shows the key itself")


@logins.get("/v1/login")
async def get_login(caller: RequestCaller) -> Login:
    """Return what the key of the request may do."""
    return Login.model_validate(caller, from_attributes=True)


@logins.post("/v1/login")
async def log_in(parts: GatewayParts, request: Request, response: Response, caller: RequestCaller) -> Login:
    """Set a cookie that stands for the key of the request, for 12 hours, on pages of this gateway only."""
    if not caller.key_id:
        raise Forbidden("This gateway has no API keys, so nobody signs in.")
    if caller.ends_at is not None:
        raise KeyMissing
    _set_cookie(request, response, await parts.logins.new(caller), LOGIN_S)
    return await get_login(caller)


@logins.delete("/v1/login", status_code=204, response_class=Response)
async def log_out(parts: GatewayParts, request: Request, response: Response) -> None:
    """End the login of the request's cookie."""
    if login := request.cookies.get(COOKIE):
        await parts.logins.end(login)
        _set_cookie(request, response, "", 0)


def _set_cookie(request: Request, response: Response, value: str, max_age_s: int) -> None:
    path = urlsplit(address_of(request, "")).path or "/"
    is_secure = request.headers.get("origin", "").startswith("https:")  # Only the browser knows, behind a proxy.
    response.set_cookie(COOKIE, value, max_age_s, path=path, secure=is_secure, httponly=True, samesite="strict")


@router.get(PAGE, include_in_schema=False)
async def page(request: Request) -> Response:
    """Return the page."""
    return await _answer("index.html", request, "no-cache")


@router.get(ASSETS, include_in_schema=False)
async def asset(name: str, request: Request) -> Response:
    """Return a script, a style or a picture of the page."""
    return await _answer(f"assets/{name}", request, "public, max-age=31536000, immutable")


async def _answer(name: str, request: Request, caching: str) -> Response:
    plain, packed = (await asyncio.to_thread(_files)).get(name) or (None, b"")
    if plain is None:
        raise NotFound
    path, headers = Path(name), _HEADERS | {"Cache-Control": caching}
    if accepts_gzip(request.headers):
        plain, headers["Content-Encoding"] = packed, "gzip"
    kind = _TYPES.get(path.suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(plain, headers=headers, media_type=kind)


@cache
def _files() -> dict[str, tuple[bytes, bytes]]:
    """Read all files once, so that no name that is asked for becomes a path; with their compressed form."""
    files = (path for path in _FILES.rglob("*") if path.is_file())
    return {
        path.relative_to(_FILES).as_posix(): (content := path.read_bytes(), gzip.compress(content, mtime=0))
        for path in files
    }
