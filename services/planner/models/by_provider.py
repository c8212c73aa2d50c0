"""Chooses how a model is asked: the demo model, directly with OpenAI's protocol, or through LiteLLM.

The LiteLLM side is imported when a model needs it: its HTTP client alone takes 0.1 s and 8 MB.
"""

from collections.abc import AsyncGenerator, Iterable
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from services.planner.models import demo
from services.planner.models.direct.openai_compatible import OpenAICompatibleModel
from services.planner.models.limits import Limits
from services.planner.models.providers import Endpoints
from services.planner.models.selection import ANY_MODEL
from services.planner.models.types import Delta, ModelRequest, Reply

if TYPE_CHECKING:
    from services.planner.models.litellm.model import LiteLLMModel


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


def missing_library(models: Iterable[str], endpoints: Endpoints) -> str | None:
    """Say which of the models needs LiteLLM where it is not installed, and how to mend that; None: none does."""
    needing = [name for name in models if name != ANY_MODEL and not _is_demo(name) and not endpoints.serves(name)]
    if not needing or find_spec("litellm"):
        return None
    return (
        f"{needing[0]} is asked through LiteLLM, which is not installed here: `make run` in a clone installs it where "
        "RUNWIRE_MODEL or a provider's key needs it, else: pip install '/path/to/clone[litellm]'"
    )


def _is_demo(model: str) -> bool:
    return model.startswith(f"{demo.PROVIDER}/")
