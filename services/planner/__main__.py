"""Run the planner: `python -m services.planner`; with `--check`, only its settings are checked."""

import os
import sys

from services.messaging.nats_link import run_on_nats
from services.planner.agents import InvalidAgents, load_agents
from services.planner.app import running
from services.planner.models.by_provider import choose_model, missing_library
from services.planner.models.providers import Endpoints, known_model
from services.planner.settings import PlannerSettings
from services.runtime.settings import misconfigured, read_settings
from services.shared.runs.pages.registry import InvalidPages, load_pages


def main() -> None:
    """Run the planner. An invalid agents or pages file ends it with one sentence, before it connects to NATS."""
    settings = read_settings(PlannerSettings)
    if (name := settings.model) and "/" not in name and name not in settings.model_servers and not known_model(name):
        form = "as in openai/gpt-5.4-mini or anthropic/claude-sonnet-4-6"
        raise misconfigured(f"wrong settings: RUNWIRE_MODEL: {name} names no provider, {form}, and is no known model")
    models = [choose_model(settings.model, os.environ).model, *settings.models, *settings.fallback_models]
    endpoints = Endpoints(environment=os.environ, servers=settings.model_servers)
    if (missing := missing_library(models, endpoints)) is not None:
        raise misconfigured(missing)
    try:
        agents = load_agents(settings.agents_file)
        load_pages(settings.pages_file)
    except InvalidAgents as error:
        raise misconfigured(f"wrong agents file: {error}") from None
    except InvalidPages as error:
        raise misconfigured(str(error)) from None
    if "--check" not in sys.argv:
        run_on_nats("planner", settings, lambda bus, _health: running(bus, settings, agents))


if __name__ == "__main__":
    main()
