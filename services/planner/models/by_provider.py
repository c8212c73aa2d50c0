"""Chooses how a model is asked: the demo model, directly with OpenAI's protocol, or through LiteLLM."""

from collections.abc import AsyncGenerator, Iterable

from services.planner.models import demo
from services.planner.models.byte_limits import Limits
from services.planner.models.litellm import LiteLLMModel
from services.planner.models.openai_compatible import OpenAICompatibleModel
from services.planner.models.providers import Endpoints
from services.planner.models.types import Delta, Model, ModelRequest, Reply


class ByProvider:
    """A model that passes each request on to the one that its name belongs to."""

    def __init__(self, endpoints: Endpoints, limits: Limits) -> None:
        self._endpoints = endpoints
        self._demo = demo.DemoModel()
        self._direct = OpenAICompatibleModel(endpoints, limits)
        self._litellm = LiteLLMModel(limits=limits)

    async def warm(self, models: Iterable[str]) -> None:
        """Import LiteLLM if one of these models needs it. Otherwise it is imported by the first request that does."""
        if any(self._chosen(model) is self._litellm for model in models):
            await self._litellm.warm()

    async def aclose(self) -> None:
        """Close the connections that are kept open for further requests."""
        await self._direct.aclose()
        await self._litellm.aclose()

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        return self._chosen(request.model).stream(request)

    def _chosen(self, model: str) -> Model:
        if model.startswith(f"{demo.PROVIDER}/"):
            return self._demo
        return self._direct if self._endpoints.serves(model) else self._litellm
