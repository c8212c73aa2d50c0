"""Which model `runwire doctor` names."""

import pytest

from contracts.runs.requests import AgentModels
from contracts.wire.operation import DEMO_MODEL
from runwire.cli.commands.doctor import model_of_next_start, planners_model
from runwire.local import launch
from services.planner.models import by_provider


@pytest.mark.parametrize(
    ("agents", "finding"),
    [
        ({"default": ["openai/x"]}, "openai/x (the planner's)"),
        ({"default": ["a/x", "b/y"], "writer": ["a/x", "b/y"]}, "a/x, b/y (the planner's)"),
        ({"default": ["a/x"], "writer": ["b/y"]}, "a/x (the planner's); writer: b/y"),
        ({}, "no planner runs, so questions wait"),
    ],
)
def test_the_running_planner_is_asked(agents: dict[str, list[str]], finding: str) -> None:
    """With the agents whose models differ from the usual one."""
    check = planners_model([AgentModels(name=name, models=models) for name, models in agents.items()])
    assert (check.finding, check.status) == (finding, "ok" if agents else "warning")


def test_the_demo_model_is_a_warning() -> None:
    """A new user may not notice that no real model answers."""
    check = planners_model([AgentModels(name="default", models=[DEMO_MODEL])])
    assert check.status == "warning"
    assert check.finding.startswith("builtin/rehearsal (the planner's): the demo model")


@pytest.mark.parametrize("environment", [{"RUNWIRE_MODEL": "openai/x"}, {"GROQ_API_KEY": "k", "XAI_API_KEY": "k"}, {}])
def test_without_a_planner_the_next_start_counts(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what the planner would choose in this environment."""
    monkeypatch.setattr(launch, "listens", lambda _port: False)
    chosen = by_provider.choose_model(environment.get("RUNWIRE_MODEL"), environment).model
    assert f"{chosen} would answer after `runwire up`" in model_of_next_start(environment).finding
