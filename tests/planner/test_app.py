"""The composed planner: what it publishes of its models, and a run through all of it."""

import asyncio
import json
from pathlib import Path

import pytest

from contracts.artifacts import ModelProfile
from contracts.wire import keys
from contracts.wire.operation import EXIT_WRONG_SETTINGS
from services.planner.__main__ import main
from services.planner.agents import load_agents
from services.planner.app import models_of, profiles_of, running
from services.planner.effects.call_paths import DirectCalls
from services.planner.settings import PlannerSettings
from services.shared.tools.catalogue import Catalogue, read_entries
from tests.support.buses import provisioned
from tests.support.nats_server import NatsServer
from tests.support.run_services import MODEL, Planning

BACKGROUND = {"retention_sweep", "orphaned_messages", "deletions", "model_profiles"}


async def test_it_handles_runs_until_its_context_ends(nats_server: NatsServer) -> None:
    """Requests may name its models from the beginning, and nothing is left running.

    Its background tasks run under their names, so that readiness can name one that dies.
    """
    named = {f"openai/{number}" for number in range(40)}
    settings = PlannerSettings(nats_url=nats_server.url, model="builtin/rehearsal", models=sorted(named))
    async with provisioned(nats_server.url, "planner", settings) as bus:
        async with running(bus, settings, load_agents()):
            published, _ = await read_entries(bus, keys.model_profile.all)
            assert {profile.model for each in published.values() if (profile := each.parsed(ModelProfile))} >= named
            assert {task.get_name() for task in asyncio.all_tasks()} >= BACKGROUND
            direct_calls = DirectCalls(bus, max_waiting=0)
            story = await Planning(bus, Catalogue(bus), models_of(settings, {}), direct_calls).tell()
            assert story.end.type == "done"
        assert not {task.get_name() for task in asyncio.all_tasks()} & BACKGROUND
        assert not bus.tasks.problems()


def test_the_gateway_gets_profiles_of_all(tmp_path: Path) -> None:
    """Each has a profile; one that only requests name answers no agent's runs by default."""
    file = tmp_path / "agents.json"
    file.write_text(json.dumps({"a": {"model": "openai/a"}}))
    settings = PlannerSettings(models=["openai/e", "*"], fallback_models=["openai/f"], agents_file=file)
    found = {profile.model: profile.agents for profile in profiles_of(settings, load_agents(file), MODEL)}
    assert found == {
        MODEL: ["default"],
        "openai/a": ["a"],
        "openai/e": [],
        "*": [],
        "openai/f": [],
        "builtin/rehearsal": [],
    }


def test_a_model_without_a_provider_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it connects: every run would fail."""
    monkeypatch.setenv("RUNWIRE_MODEL", "nonsense")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == EXIT_WRONG_SETTINGS
    assert "RUNWIRE_MODEL: nonsense names no provider, as in openai/" in capsys.readouterr().err
