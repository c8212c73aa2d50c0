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
        self._refused: dict[str, bool] = {}
        """Models that refused a request with `response_format` -> whether they have answered one without."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        leaves_format_out = request.response_format is not None and request.model in self._refused
        sent = replace(request, response_format=None) if leaves_format_out else request
        refused = False
        try:
            async with aclosing(self._model.stream(sent)) as pieces:
                async for piece in pieces:
                    yield piece
        except ModelFailed as error:
            refused = (
                error.status in _UNSURE_OF_FORMAT and error.fault.code == "model_refused" and not error.after_output
            )
            if not refused or sent.response_format is None:
                # Without any reply to a request without the format, the refusal may have another cause.
                if refused and leaves_format_out and not self._refused.get(request.model):
                    self._refused.pop(request.model, None)
                raise
        if refused:
            self._refused.setdefault(request.model, False)
            reason = f"the provider of {request.model} refused a request with response_format"
            raise ModelFailed("response_format_refused", reason, retryable=True)
        if leaves_format_out:
            self._refused[request.model] = True
