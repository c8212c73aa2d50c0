"""When a client tries again, and the errors after which it does not."""

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any

import httpx

from contracts.wire import ids
from runwire.errors import (
    IdempotencyConflict,
    NotFound,
    PauseChanged,
    PauseClosed,
    RunAlreadyEnded,
    RunwireError,
    SessionBusy,
    Unreachable,
)

_RETRYABLE_STATUS = frozenset({408, 429, 502, 503, 504})
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.1, 5.0
_MAX_REFUSED_S = 5.0
"""How long connections that are refused are tried again, by a client that no gateway has answered yet."""
_CLASSES: dict[str, type[RunwireError]] = {
    "not_found": NotFound,
    "idempotency_conflict": IdempotencyConflict,
    "session_busy": SessionBusy,
    "pause_closed": PauseClosed,
    "pause_changed": PauseChanged,
    "run_ended": RunAlreadyEnded,
}


@dataclass
class Patience:
    """How long a client repeats a request that fails."""

    limit_s: float
    url: httpx.URL
    was_answered: bool = False
    """Whether a gateway has answered this client. If connections are refused after that, it is being restarted."""


class Retries:
    """Growing random pauses between attempts, for at most `limit_s` seconds since the first failure."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.reset()

    def reset(self) -> None:
        """An attempt succeeded: the next failure is the first one again."""
        self._attempt = 0
        self._since: float | None = None

    def note_answer(self) -> None:
        """Note that a gateway has answered, with success or an error."""
        self._patience.was_answered = True

    async def pause(self, reason: Exception | None) -> None:
        """Wait before the next attempt.

        Raises Unreachable, or the gateway's own refusal, when the next attempt would exceed the limit.
        """
        now = time.monotonic()
        self._since = self._since if self._since is not None else now
        ceiling_s = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2**self._attempt)
        pause_s = random.uniform(ceiling_s / 2, ceiling_s)  # noqa: S311, a spread, not a secret
        if isinstance(reason, RunwireError) and reason.retry_after:
            pause_s = random.uniform(reason.retry_after, reason.retry_after * 1.5)  # noqa: S311
        limit_s = self._patience.limit_s
        is_refused = isinstance(reason, httpx.ConnectError) and not self._patience.was_answered
        if is_refused:
            limit_s = min(limit_s, _MAX_REFUSED_S)
        if now + pause_s - self._since > limit_s:
            if isinstance(reason, RunwireError):
                raise reason
            url = self._patience.url
            what = "nobody listens" if is_refused else "no gateway answered"
            text = f"{what} at {url.scheme}://{url.netloc.decode()}, tried for {limit_s:g} s: {reason or repr(reason)}"
            # Without the errors of httpx: their traceback has a hundred lines and says no more.
            raise Unreachable("unreachable", text) from None
        self._attempt += 1
        await asyncio.sleep(pause_s)


def retryable(answer: httpx.Response) -> RunwireError:
    """Return a refusal after which another attempt may succeed; raise any other."""
    error = error_of(answer)
    if not is_retryable(error):
        raise error
    return error


def is_retryable(error: RunwireError) -> bool:
    """Whether another attempt may succeed."""
    return error.status in _RETRYABLE_STATUS


def error_of(answer: httpx.Response) -> RunwireError:
    """The error for an answer. One without a JSON body comes from a proxy."""
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    body: dict[str, Any] = problem if isinstance(problem, dict) else {}
    code = str(body.get("code", f"http_{answer.status_code}"))
    errors = body.get("errors")
    retry_after = answer.headers.get("retry-after")
    return _CLASSES.get(code, RunwireError)(
        code,
        str(body.get("detail", f"HTTP status {answer.status_code}")),
        status=answer.status_code,
        retry_after=float(retry_after) if retry_after and retry_after.isdigit() else None,
        errors=tuple(error for error in errors if isinstance(error, dict)) if isinstance(errors, list) else (),
        run_id=body.get("run_id"),
    )


def checked(identifier: str) -> str:
    """Return the id of a run or artifact. Raises NotFound for what cannot be one."""
    try:
        return ids.checked_id(identifier)
    except ids.InvalidName as error:
        raise NotFound("not_found", str(error)) from error
