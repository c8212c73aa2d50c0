"""Remembers which models refuse `response_format`, and leaves it out of further requests to them.

Some servers refuse any `response_format`. The prompt asks for JSON too, so such a request is made again without it: the
refusal is a failed attempt with a code of its own, and the run decides what follows, as for every failure.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from services.planner.models.errors import ModelFailed
from services.planner.models.types import Delta, Model, ModelRequest, Reply

_UNSURE_OF_FORMAT = frozenset({400, 422})


class WithoutRefusedFormats:
    """A model that sends `response_format` to another one unless it has refused it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._refused: set[str] = set()
        """Models that refused a request with `response_format`."""
        self._answered: set[str] = set()
        """Those of them that have answered a request without it."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        if request.response_format is None:
            return self._model.stream(request)
        return self._without_format(request) if request.model in self._refused else self._with_format(request)

    async def _with_format(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        try:
            async with aclosing(self._model.stream(request)) as pieces:
                async for piece in pieces:
                    yield piece
        except ModelFailed as error:
            if not _is_refusal(error):
                raise
            self._refused.add(request.model)
            reason = f"the provider of {request.model} refused a request with response_format"
            raise ModelFailed("response_format_refused", reason, retryable=True) from None

    async def _without_format(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        try:
            async with aclosing(self._model.stream(replace(request, response_format=None))) as pieces:
                async for piece in pieces:
                    yield piece
        except ModelFailed as error:
            # Without any reply to a request without the format, the refusal may have another cause.
            if _is_refusal(error) and request.model not in self._answered:
                self._refused.discard(request.model)
            raise
        self._answered.add(request.model)


def _is_refusal(error: ModelFailed) -> bool:
    return error.status in _UNSURE_OF_FORMAT and error.fault.code == "model_refused" and not error.after_output
