"""Say no to images for a model that does not see them, before a run exists.

What models make of images is in the planners' profiles, in the catalogue. They stand there as long as a planner
refreshes them. A model of which nobody says anything is let through: its run tells.
"""

from contracts.images import ModelProfile, VisionMode
from services.gateway.errors import VisionUnsupported
from services.gateway.submissions.models import Models


class Vision:
    """Knows which models see."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def check(self, model: str | None, agent: str, mode: VisionMode | None) -> None:
        """Raises VisionUnsupported when no model that would answer takes images, and Unavailable without NATS."""
        asked = [
            profile
            for profile in await self._models.known()
            if (profile.model == model if model else agent in profile.agents)
        ]
        if asked and all(_refuses(profile, agent, mode) for profile in asked):
            raise VisionUnsupported(sorted(profile.model for profile in asked))


def _refuses(profile: ModelProfile, agent: str, mode: VisionMode | None) -> bool:
    """Whether a run of the agent that asks for this mode ends because the model does not see."""
    if profile.images == "seen":
        return False
    return (mode or profile.vision.get(agent) or ("strict" if profile.images == "refused" else "lenient")) == "strict"
