"""The models that planners know, as they describe them in the catalogue.

A description stands there as long as a planner refreshes it. While there is none, nobody knows, and a run's planner
decides alone.
"""

from contracts import keys
from contracts.images import ModelProfile
from services.gateway.errors import InvalidInput
from services.messaging.connection import Bus
from services.shared.tool_catalogue import read_entries

_ANY = "*"
_SHOWN = 50


class Models:
    """Reads the profiles when they are asked for."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def known(self) -> list[ModelProfile]:
        """All profiles. Raises Unavailable without NATS."""
        entries, _ = await read_entries(self._bus, keys.ALL_MODELS)
        # Nothing is known from a version that describes models in another way.
        return [profile for entry in entries.values() if (profile := entry.parsed(ModelProfile)) is not None]

    async def check(self, model: str | None) -> None:
        """Raises InvalidInput for a model that no planner names, and Unavailable without NATS."""
        if model is None:
            return
        names = sorted({profile.model for profile in await self.known()})
        if not names or model in names or _ANY in names:
            return
        there = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        raise InvalidInput("model", f"Requests may name: {there}. RUNWIRE_MODELS of the planner adds others.")
