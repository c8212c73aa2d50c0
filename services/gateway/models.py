"""Check the model of a run before the run exists: whether planners know its name, and whether it takes images.

Planners describe their models in the catalogue, and refresh the descriptions. A model without a description passes:
its planner decides.
"""

from contracts.artifacts import ModelProfile, VisionMode
from contracts.runs.requests import AgentModels
from contracts.wire import keys
from services.gateway.errors import InvalidInput, VisionUnsupported
from services.messaging.connection import Bus
from services.messaging.kv import Entry
from services.shared.tools.catalogue import read_entries

_ANY_NAME = "*"
_MAX_NAMES_IN_ERROR = 50
_SAME_ROUND_S = 5.0
"""A planner describes all its models together. An older description comes from a planner that has ended."""


class ModelProfiles:
    """Reads the descriptions when they are needed."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def check_name(self, model: str | None) -> None:
        """Raise InvalidInput for a model that no planner names, and Unavailable without NATS."""
        if model is None:
            return
        names = sorted({profile.model for _, profile in await self._entries()})
        if not names or model in names or _ANY_NAME in names:
            return
        known = ", ".join(names[:_MAX_NAMES_IN_ERROR]) + (", …" if len(names) > _MAX_NAMES_IN_ERROR else "")
        raise InvalidInput("model", f"Requests may name: {known}. RUNWIRE_MODELS of the planner adds others.")

    async def of_agents(self) -> list[AgentModels]:
        """Return the agents by name, each with the models that answer its runs if a request names none.

        Raises Unavailable.
        """
        described = [(entry.expires_at, profile) for entry, profile in await self._entries()]
        newest: dict[str, float] = {}
        for expires_at, profile in described:
            newest |= {agent: max(expires_at, newest.get(agent, 0.0)) for agent in profile.agents}
        found = {
            agent: [each for at, each in described if agent in each.agents and at >= newest_at - _SAME_ROUND_S]
            for agent, newest_at in sorted(newest.items())
        }
        return [
            AgentModels(
                name=agent,
                models=sorted(each.model for each in profiles),
                description=next((text for each in profiles if (text := each.descriptions.get(agent))), ""),
                sees_images=any(each.images == "seen" for each in profiles),
            )
            for agent, profiles in found.items()
        ]

    async def check_vision(self, model: str | None, agent: str, mode: VisionMode | None) -> None:
        """Raise VisionUnsupported when no model that would answer takes images, and Unavailable without NATS."""
        described = [profile for _, profile in await self._entries()]
        candidates = [each for each in described if (each.model == model if model else agent in each.agents)]
        if candidates and all(_refuses_images(profile, agent, mode) for profile in candidates):
            raise VisionUnsupported(sorted(profile.model for profile in candidates))

    async def _entries(self) -> list[tuple[Entry, ModelProfile]]:
        entries, _ = await read_entries(self._bus, keys.model_profile.all)
        # A description of another version says nothing.
        return [(entry, profile) for entry in entries.values() if (profile := entry.parsed(ModelProfile)) is not None]


def _refuses_images(profile: ModelProfile, agent: str, mode: VisionMode | None) -> bool:
    """Return whether a run of the agent in this mode would end because the model does not take images."""
    if profile.images == "seen":
        return False
    return (mode or profile.vision.get(agent) or ("strict" if profile.images == "refused" else "lenient")) == "strict"
