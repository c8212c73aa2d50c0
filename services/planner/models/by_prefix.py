"""Chooses a model by the prefix of its name: the demo model for `builtin/`, LiteLLM for all others."""

from collections.abc import AsyncGenerator

from services.planner.models import demo
from services.planner.models.types import Delta, Model, ModelRequest, Reply


class ByPrefix:
    """A model that passes each request on to the one that its name belongs to."""

    def __init__(self, other: Model) -> None:
        self._demo = demo.DemoModel()
        self._other = other

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        chosen = self._demo if request.model.startswith(f"{demo.PROVIDER}/") else self._other
        return chosen.stream(request)
