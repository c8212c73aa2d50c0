"""The playground: files of a web page, built from `web/` and served as they are.

Rule 1: they are answered without a key, since they show nothing of any tenant. What the page shows, it asks for as any
other client does.
Rule 2: the page runs its own scripts only, loads nothing from another origin, is framed by none, and turns no text into
HTML but by its sanitiser (`trusted-types`).
Rule 3: names of assets hold a digest of what is in them, so browsers keep them; they ask for the page each time.
"""

import asyncio
import gzip
import mimetypes
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response

from services.gateway.errors import NotFound

from .compression import accepts_gzip

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
