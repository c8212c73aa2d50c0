"""Retries a model request, then tries fallback models (docs/planner.md#when-a-reply-will-not-do).

Rule 1: only before the first delta. A later retry changes streamed text, so it needs a record in the log.
Rule 2: rate limits, server errors, time-outs and empty replies are retried after a growing pause, or after the pause
that the provider names. If that is longer than `longest_pause_s`, the next model is tried. Without a next model the
pause is kept, if `total_s` allows it.
Rule 3: a context overflow and a refusal are raised at once, since a retry would fail too.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from contracts.faults import Fault
from services.planner.models.errors import ModelFailed
from services.planner.models.types import Delta, Model, ModelRequest, Reply

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The remedy of a failure: wait `wait_s` and retry `model`, or call `model` instead of `failed`."""

    kind: Literal["retry", "fallback"]
    failed: str
    model: str
    attempt: int
    wait_s: float
    fault: Fault


OnNote = Callable[[Note], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A Model that retries `model`, and then tries its fallbacks. `dataclasses.replace` sets the `on_note` of a run.

    `tries` counts requests per model; pauses are in seconds, `first_pause_s` doubling up to `longest_pause_s`.
    """

    model: Model
    fallbacks: tuple[str, ...] = ()
    tries: int = 3
    first_pause_s: float = 0.5
    longest_pause_s: float = 20.0
    on_note: OnNote | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] | None = None
    chance: Callable[[], float] = random.SystemRandom().random

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply of the first model that gives one; `usage.model_calls` counts all requests.

        Raises ModelFailed.
        """
        fallbacks = self.fallbacks if request.fallbacks is None else request.fallbacks
        names = list(dict.fromkeys([request.model, *fallbacks]))
        clock = self.clock or asyncio.get_running_loop().time
        end = None if request.total_s is None else clock() + request.total_s
        failures: dict[str, ModelFailed] = {}
        calls = attempt = 0
        while True:
            calls, attempt = calls + 1, attempt + 1
            left = None if end is None else end - clock()
            try:
                async with aclosing(self.model.stream(replace(request, model=names[0], total_s=left))) as pieces:
                    async for piece in pieces:
                        yield _with_calls(piece, calls) if isinstance(piece, Reply) else piece
            except ModelFailed as error:
                failures[names[0]] = error
                _log(error, names[0], attempt)
            else:
                return
            failure = failures[names[0]]
            failure.calls = calls
            if failure.after_output or not (failure.fault.retryable or failure.elsewhere):
                raise failure
            pause = self._pause(failure, attempt, last=len(names) == 1)
            failed = names[0]
            if pause is None:
                names.pop(0)
                attempt = 0
            if not names or (end is not None and clock() + (pause or 0) >= end):
                raise _all_of(failures)
            await self._go_on(failed, names[0], pause, attempt, failure.fault)

    def _pause(self, failure: ModelFailed, attempt: int, *, last: bool) -> float | None:
        """Return the seconds until the same model is retried; None: it is not. `last`: no other model is left."""
        asked_for = failure.retry_after_s or 0.0
        if not failure.fault.retryable or attempt >= self.tries or (asked_for > self.longest_pause_s and not last):
            return None
        grown = min(self.longest_pause_s, self.first_pause_s * 2.0 ** (attempt - 1))
        # Half of it is random, so that runs that failed together do not retry together.
        return max(asked_for, float(grown) * (0.5 + self.chance() / 2))

    async def _go_on(self, failed: str, model: str, pause: float | None, attempt: int, fault: Fault) -> None:
        if self.on_note is not None:
            kind: Literal["retry", "fallback"] = "fallback" if pause is None else "retry"
            await self.on_note(
                Note(kind=kind, failed=failed, model=model, attempt=attempt + 1, wait_s=pause or 0.0, fault=fault)
            )
        if pause:
            await self.sleep(pause)


def _log(error: ModelFailed, model: str, attempt: int) -> None:
    fault, after_output = error.fault, error.after_output
    logger.info(
        "model_request_failed",
        model=model,
        attempt=attempt,
        code=fault.code,
        reason=fault.reason,
        status=error.status,
        after_output=after_output,
    )


def _with_calls(reply: Reply, calls: int) -> Reply:
    return replace(reply, usage=reply.usage.model_copy(update={"model_calls": calls}))


def _all_of(failures: dict[str, ModelFailed]) -> ModelFailed:
    """Combine the failures of several models: the kind of the last, the reasons of all."""
    last = list(failures.values())[-1]
    if len(failures) == 1:
        return last
    return ModelFailed(
        last.fault.code,
        "; ".join(failure.fault.reason for failure in failures.values()),
        retryable=any(failure.fault.retryable for failure in failures.values()),
        retry_after_s=last.retry_after_s,
        status=last.status,
        elsewhere=last.elsewhere,
        calls=last.calls,
    )
