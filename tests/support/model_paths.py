"""The two ways in which a model is asked, for tests that run on both."""

import os

from services.planner.models.by_provider import ByProvider
from services.planner.models.limits import Limits
from services.planner.models.litellm.model import LiteLLMModel
from services.planner.models.providers import Endpoints

PATHS = ["directly", "through LiteLLM"]
Models = ByProvider | LiteLLMModel


def models_on(path: str, api_base: str | None, limits: Limits = Limits()) -> Models:  # noqa: B008, frozen
    """Models `openai/…` are asked on this path, at this address."""
    if path == "directly":
        return ByProvider(Endpoints(environment=os.environ, api_base=api_base), limits)
    return LiteLLMModel(api_base=api_base, limits=limits)
