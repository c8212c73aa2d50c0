"""Requests to one gateway, repeated until they are answered or the client's patience is over."""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

import httpx
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from contracts.wire import names
from runwire import errors
from runwire.errors import NotFound, RunwireError, Unreachable

T = TypeVar("T", bound=BaseModel)
_MAX_PORT = 65535
RETRYABLE_STATUS = frozenset({408, 429, 502, 503, 504})
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 5.0
_MAX_REFUSED_S = 5.0
"""How long connections that are refused are tried again, by a client that no gateway has answered yet."""
_CLASSES: dict[str, type[RunwireError]] = {
    "not_found": NotFound,
    "idempotency_conflict": errors.IdempotencyConflict,
    "session_busy": errors.SessionBusy,
    "pause_closed": errors.PauseClosed,
    "pause_changed": errors.PauseChanged,
    "run_ended": errors.RunAlreadyEnded,
}


class Retries:
    """Growing random pauses between attempts, for as long as the client has patience since the first failure."""

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport
        self.reset()

    def reset(self) -> None:
        """An attempt succeeded: the next failure is the first one again."""
        self._attempt = 0
        self._since: float | None = None

    async def pause(self, reason: Exception | None) -> None:
        """Wait before the next attempt.

        Raises Unreachable, or the gateway's own refusal, when the next attempt would exceed the limit, and at once
        RunwireError for a certificate that no attempt would make valid.
        """
        url = self._transport.http.base_url
        if "CERTIFICATE_VERIFY_FAILED" in str(reason):
            trust = f"the certificate of {url.host} is not trusted: SSL_CERT_FILE names its authority"
            raise RunwireError("certificate_not_trusted", trust) from None
        now = time.monotonic()
        self._since = self._since if self._since is not None else now
        ceiling_s = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2**self._attempt)
        pause_s = random.uniform(ceiling_s / 2, ceiling_s)  # noqa: S311, a spread, not a secret
        if isinstance(reason, RunwireError) and reason.retry_after:
            pause_s = random.uniform(reason.retry_after, reason.retry_after * 1.5)  # noqa: S311
        limit_s = self._transport.patience_s
        is_refused = isinstance(reason, httpx.ConnectError) and not self._transport.was_answered
        if is_refused:
            limit_s = min(limit_s, _MAX_REFUSED_S)
        if now + pause_s - self._since > limit_s:
            if isinstance(reason, RunwireError):
                raise reason
            what = "nobody listens" if is_refused else "no gateway answered"
            text = f"{what} at {url.scheme}://{url.netloc.decode()}, tried for {limit_s:g} s: {reason or repr(reason)}"
            # Without the errors of httpx: their traceback has a hundred lines and says no more.
            raise Unreachable("unreachable", text) from None
        self._attempt += 1
        await asyncio.sleep(pause_s)


def retryable(answer: httpx.Response) -> RunwireError:
    """Return a refusal after which another attempt may succeed; raise any other."""
    error = error_of(answer)
    if error.status not in RETRYABLE_STATUS:
        raise error
    return error


def error_of(answer: httpx.Response) -> RunwireError:
    """The error for an answer. One without a JSON body comes from a proxy."""
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    body: dict[str, Any] = problem if isinstance(problem, dict) else {}
    code = str(body.get("code", f"http_{answer.status_code}"))
    faults = body.get("errors")
    retry_after = answer.headers.get("retry-after")
    return _CLASSES.get(code, RunwireError)(
        code,
        str(body.get("detail", f"HTTP status {answer.status_code}")),
        status=answer.status_code,
        retry_after=float(retry_after) if retry_after and retry_after.isdigit() else None,
        errors=tuple(fault for fault in faults if isinstance(fault, dict)) if isinstance(faults, list) else (),
        run_id=body.get("run_id"),
    )


def checked(identifier: str) -> str:
    """Return the id of a run or artifact. Raises NotFound for what cannot be one."""
    try:
        return names.checked_id(identifier)
    except names.InvalidName as error:
        raise NotFound("not_found", str(error)) from error


class Page(BaseModel, Generic[T]):
    """A list, or a page of one."""

    items: list[T] = Field(
        validation_alias=AliasChoices("agents", "artifacts", "groups", "runs", "schedules", "sessions", "tasks")
    )
    next_cursor: str | None = None


class Transport:
    """The connections to one gateway. Raises RunwireError for an address or a key that can never work."""

    def __init__(self, url: str, key: str | None, patience_s: float) -> None:
        # What can never be reached is refused, instead of being tried for `patience_s`.
        try:
            address = httpx.URL(url)
        except httpx.InvalidURL:
            address = httpx.URL("")
        if address.scheme not in {"http", "https"} or not address.host or (address.port or 0) > _MAX_PORT:
            raise RunwireError("bad_url", f"{url!r} is not a gateway's address; one looks like http://127.0.0.1:8080")
        if key and not (key.isascii() and key.isprintable()):
            raise RunwireError("bad_key", "an API key has visible ASCII characters only")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        # Without TLS the certificates of all authorities, which take 50 ms to read, are of no use.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.scheme == "http" else True
        self.http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=httpx.Timeout(30, connect=5), limits=limits, verify=verify
        )
        self.patience_s = patience_s
        self.was_answered = False
        """Whether a gateway has answered this client. If connections are refused after that, it is being restarted."""

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
        retries = Retries(self)
        while True:
            reason: Exception
            try:
                answer = await self.http.request(method, path, **request)
                self.was_answered = True
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
        retries = Retries(self)
        while (answer := await self.request("POST", path, **request)).status_code == httpx.codes.ACCEPTED:
            await retries.pause(RunwireError("unavailable", "no planner has taken it yet; it may still take effect"))
        return answer

    async def listed(
        self, kind: type[T], path: str, most: int | None = None, /, **params: str | int | None
    ) -> AsyncIterator[T]:
        """Yield the items of a list over its pages, at most so many; parameters that are None are left out.

        Raises RunwireError.
        """
        of_kind: type[Page[T]] = Page[kind]  # type: ignore[valid-type]  # known at run time
        given = {name: value for name, value in params.items() if value is not None}
        yielded = 0
        while True:
            page = await self.ask(of_kind, "GET", path, params=given)
            for item in page.items:
                yield item
                yielded += 1
                if yielded == most:
                    return
            if not page.next_cursor:
                return
            given["cursor"] = page.next_cursor

    async def download(self, path: str) -> AsyncIterator[bytes]:
        """Yield what an address holds in pieces; a download that breaks off is continued. Raises RunwireError."""
        retries = Retries(self)
        received_bytes, etag = 0, ""
        while True:
            headers = {"Accept-Encoding": "identity"}
            if received_bytes:  # An artifact never changes; the tag makes sure.
                headers |= {"Range": f"bytes={received_bytes}-", "If-Range": etag}
            reason: Exception
            try:
                async with self.http.stream("GET", path, headers=headers) as answer:
                    self.was_answered = True
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
                if received_bytes and not etag:
                    raise RunwireError("broken_off", "the download broke off: start it again") from error
                reason = error
            await retries.pause(reason)
