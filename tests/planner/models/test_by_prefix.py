"""Which model a request goes to."""

from collections.abc import AsyncGenerator

import pytest

from services.planner.models.by_prefix import ByPrefix
from services.planner.models.errors import ModelFailed
from services.planner.models.types import Delta, ModelRequest, Reply


class Other:
    """A model that says which one was asked for."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield its name."""
        yield Reply(text=request.model)


async def said(model: str) -> str:
    """What comes back for a request to this model."""
    pieces = [piece async for piece in ByPrefix(Other()).stream(ModelRequest(model=model, messages=[]))]
    assert isinstance(pieces[-1], Reply)
    return pieces[-1].text


async def test_the_prefix_decides() -> None:
    """The demo model answers under its own name alone."""
    assert await said("openai/builtin/rehearsal") == "openai/builtin/rehearsal"
    assert "final_response" in await said("builtin/rehearsal")
    with pytest.raises(ModelFailed, match="there is no model builtin/other"):
        await said("builtin/other")
