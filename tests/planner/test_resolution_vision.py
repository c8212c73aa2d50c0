"""Which models take images, as the catalogue shows it."""

import asyncio
from pathlib import Path

from contracts.artifacts import ModelProfile
from contracts.wire import keys
from contracts.wire.names import new_id
from services.planner import resolution
from services.planner.agents import parse_agents
from tests.planner.conftest import Plan
from tests.support.catalogue import key_subject
from tests.support.run_services import MODEL
from tests.support.waiting import wait_until

BLIND = "openai/blind"


async def test_profiles_are_in_the_catalogue(plan: Plan, tmp_path: Path) -> None:
    """Of every model that the planner uses, with its agents; what is declared wins over LiteLLM's table."""
    _ = tmp_path
    agents = parse_agents({"painter": {"model": MODEL}, "writer": {"model": BLIND, "vision": "lenient"}})
    support = resolution.VisionSupport(lambda model: model == BLIND, {MODEL: True, BLIND: False})
    found = {profile.model: profile for profile in resolution.profiles(support, agents, MODEL, ["openai/other"])}
    assert found[MODEL] == ModelProfile(
        model=MODEL, images="seen", agents=["default", "painter"], vision={"writer": "lenient"}
    )
    assert found[BLIND] == ModelProfile(model=BLIND, images="refused", agents=["writer"], vision={"writer": "lenient"})
    assert found["openai/other"].images == "refused"
    planner = await plan()
    name = f"openai/{new_id()}"
    publishing = asyncio.create_task(
        resolution.publish_profiles(planner.bus, [ModelProfile(model=name, images="dropped")])
    )
    try:

        async def is_there() -> bool:
            kept = await planner.bus.last("KV_catalogue", key_subject(keys.model_key(name)))
            return kept is not None and ModelProfile.model_validate_json(kept.data).images == "dropped"

        await wait_until(is_there, what="the profile is in the catalogue")
    finally:
        publishing.cancel()
