"""Chooses how a model is asked: the demo model, directly with OpenAI's protocol, or through LiteLLM.

`WithoutRefusedFormats` remembers which models refuse `response_format`, and leaves it out of further requests to them.

The LiteLLM side is imported when a model needs it: its HTTP client alone takes 0.1 s and 8 MB.
"""

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from services.planner.models import demo
from services.planner.models.direct.openai_compatible import OpenAICompatibleModel
from services.planner.models.errors import ModelFailed
from services.planner.models.limits import Limits
from services.planner.models.providers import Endpoints
from services.planner.models.types import Delta, Model, ModelRequest, Reply

if TYPE_CHECKING:
    from services.planner.models.litellm.model import LiteLLMModel

_UNSURE_OF_FORMAT = frozenset({400, 422})


class ByProvider:
    """A model that passes each request on to the one that its name belongs to."""

    def __init__(self, endpoints: Endpoints, limits: Limits) -> None:
        self._endpoints = endpoints
        self._limits = limits
        self._demo = demo.DemoModel()
        self._direct = OpenAICompatibleModel(endpoints, limits)

    @cached_property
    def _litellm(self) -> "LiteLLMModel":
        from services.planner.models.litellm.model import LiteLLMModel  # noqa: PLC0415, see above

        return LiteLLMModel(limits=self._limits)

    async def warm(self, models: Iterable[str]) -> None:
        """Import LiteLLM if one of these models needs it. Otherwise it is imported by the first request that does."""
        if any(self._needs_litellm(model) for model in models):
            await self._litellm.warm()

    async def aclose(self) -> None:
        """Close the connections that are kept open for further requests."""
        await self._direct.aclose()
        if "_litellm" in self.__dict__:
            await self._litellm.aclose()

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        if _is_demo(request.model):
            return self._demo.stream(request)
        return (self._litellm if self._needs_litellm(request.model) else self._direct).stream(request)

    def _needs_litellm(self, model: str) -> bool:
        return not _is_demo(model) and not self._endpoints.serves(model)


def _is_demo(model: str) -> bool:
    return model.startswith(f"{demo.PROVIDER}/")


class WithoutRefusedFormats:
    """A model that sends `response_format` to another one unless it has refused it.

    Some servers refuse any `response_format`. The prompt asks for JSON too, so such a request is made again without it:
    the refusal is a failed attempt with a code of its own, and the run decides what follows, as for every failure.
    """

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
