"""Say no to images for a model that does not see them, before a run exists.

What models make of images is in the planners' profiles, in the catalogue. They stand there as long as a planner refreshes them. A model
of which nobody says anything is let through: its run tells.
"""

from pydantic import ValidationError

from contracts import subjects
from contracts.images import ModelProfile, VisionMode
from services.runtime.bus import Bus
from services.runtime.catalogue import read_entries

from .errors import VisionUnsupported


class Vision:
    """Reads the profiles when they are asked for."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def check(self, model: str | None, agent: str, mode: VisionMode | None) -> None:
        """Raises VisionUnsupported when no model that would answer takes images, and Unsure or Unavailable without NATS."""
        entries, _ = await read_entries(self._bus, subjects.ALL_MODELS)
        found = [_parsed(message.data) for message in entries.values()]
        known = [profile for profile in found if profile is not None]
        asked = [profile for profile in known if (profile.model == model if model else agent in profile.agents)]
        if asked and all(_refuses(profile, agent, mode) for profile in asked):
            raise VisionUnsupported(sorted(profile.model for profile in asked))


def _refuses(profile: ModelProfile, agent: str, mode: VisionMode | None) -> bool:
    """Whether a run of the agent that asks for this mode ends because the model does not see."""
    if profile.images == "seen":
        return False
    return (mode or profile.vision.get(agent) or ("strict" if profile.images == "refused" else "lenient")) == "strict"


def _parsed(data: bytes) -> ModelProfile | None:
    # Of a key that has expired, or from a version that says it in another way: nothing is known.
    try:
        return ModelProfile.model_validate_json(data) if data else None
    except ValidationError:
        return None
