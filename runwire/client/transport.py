"""Requests to one gateway, repeated until they are answered or the client's patience is over."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from runwire.client.retries import Patience, Retries, retryable
from runwire.errors import RunwireError

T = TypeVar("T", bound=BaseModel)
P = TypeVar("P", bound="Page")
_MAX_PORT = 65535


class Page(BaseModel):
    """A page of a list."""

    next_cursor: str | None = None


class Transport:
    """The connections to one gateway. Raises RunwireError for an address or a key that can never work."""

    def __init__(self, url: str, key: str | None, patience_s: float) -> None:
        _check_address(url)
        if key and not (key.isascii() and key.isprintable()):
            raise RunwireError("bad_key", "an API key has visible ASCII characters only")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self.http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=httpx.Timeout(30, connect=5), limits=limits
        )
        self.patience = Patience(patience_s, self.http.base_url)

    async def ask(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        """Send a request that may be repeated, and return its answer. Raises RunwireError."""
        return self.parsed(kind, await self.request(method, path, **request))

    def parsed(self, kind: type[T], answer: httpx.Response) -> T:
        """Return the body of an answer as `kind`. Raises RunwireError."""
        try:
            return kind.model_validate_json(answer.content)
        except ValidationError:
            url, status, asked = self.http.base_url, answer.status_code, answer.request
            text = (
                f"{url} answers {asked.method} {asked.url.path} with {status}, and not as a Runwire gateway of this "
                "version does"
            )
            raise RunwireError("not_a_gateway", text, status=status) from None

    async def request(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Send a request that may be repeated, until it is answered. Raises RunwireError."""
        retries = Retries(self.patience)
        while True:
            reason: Exception
            try:
                answer = await self.http.request(method, path, **request)
                retries.note_answer()
                if answer.is_success:
                    return answer
                reason = retryable(answer)
            except httpx.TransportError as error:
                reason = error
            await retries.pause(reason)

    async def settle(self, path: str, **request: Any) -> httpx.Response:
        """POST a request that bears an idempotency key until it has taken effect, and return the answer.

        202 means that it has not yet.
        """
        retries = Retries(self.patience)
        while (answer := await self.request("POST", path, **request)).status_code == httpx.codes.ACCEPTED:
            await retries.pause(RunwireError("unavailable", "no planner has taken it yet; it may still take effect"))
        return answer

    async def pages(self, kind: type[P], path: str, **params: str | int | None) -> AsyncIterator[P]:
        """Yield the pages of a list; parameters that are None are left out. Raises RunwireError."""
        given = {name: value for name, value in params.items() if value is not None}
        while True:
            page = await self.ask(kind, "GET", path, params=given)
            yield page
            if not page.next_cursor:
                return
            given["cursor"] = page.next_cursor

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """Yield what an address holds in pieces; a download that breaks off is continued. Raises RunwireError."""
        retries = Retries(self.patience)
        received_bytes, etag = 0, ""
        while True:
            headers = {"Accept-Encoding": "identity"}
            if received_bytes:  # An artifact never changes; the tag makes sure.
                headers |= {"Range": f"bytes={received_bytes}-", "If-Range": etag}
            reason: Exception
            try:
                async with self.http.stream("GET", path, headers=headers) as answer:
                    retries.note_answer()
                    if answer.status_code == (httpx.codes.PARTIAL_CONTENT if received_bytes else httpx.codes.OK):
                        etag = answer.headers.get("etag", "")
                        async for piece in answer.aiter_bytes():
                            received_bytes += len(piece)
                            retries.reset()
                            yield piece
                        return
                    await answer.aread()
                    reason = retryable(answer)
            except httpx.TransportError as error:
                reason = error
            await retries.pause(reason)


def _check_address(url: str) -> None:
    """Raise RunwireError for what can never be reached, instead of trying it for `patience_s`."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in {"http", "https"} or not parsed.host or (parsed.port or 0) > _MAX_PORT:
        raise RunwireError("bad_url", f"{url!r} is not a gateway's address; one looks like http://127.0.0.1:8080")
