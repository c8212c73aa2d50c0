"""What a request comes to in a deployment: which tools and tasks its run has, and which models there are."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.artifacts import ModelProfile
from contracts.runs.requests import RunRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.planner import resolution
from services.planner.agents import Agent, AgentTasks, parse_agents
from services.planner.errors import CannotOpen
from services.planner.resolution import Deployment, max_characters
from services.planner.settings import PlannerSettings
from services.planner.strategies.registry import strategies_of
from tests.support.run_services import MODEL

LIVE = {name: ToolSpec(name=name) for name in ("add", "draw", "send")}
AGENTS = {"default": Agent(), "painter": Agent(tools=["draw", "send", "frame"])}
DEPLOYMENT = Deployment("builtin/rehearsal", AGENTS, strategies_of(PlannerSettings()))


def requested(
    tools: list[str] | None = None, key_tools: list[str] | None = None, agent: str = "default"
) -> RunRequested:
    run = new_id()
    return RunRequested(
        run_id=run, tenant="t", requested_at=1, trace_id=run, query="q", agent=agent, tools=tools, key_tools=key_tools
    )


def opened(request: RunRequested) -> list[str]:
    return sorted(DEPLOYMENT.started(request, LIVE).tools)


def test_a_key_bounds_what_is_there() -> None:
    """A tool of its list that is not there, or that the agent does not have, is no reason to refuse the run."""
    assert opened(requested()) == ["add", "draw", "send"]
    assert opened(requested(key_tools=["add", "gone"])) == ["add"]
    assert opened(requested(key_tools=["add", "draw"], agent="painter")) == ["draw"]
    assert opened(requested(key_tools=[])) == []


def test_a_hidden_tool_is_for_calls_that_no_model_makes() -> None:
    """Naming it does not help. A call has no model, so no warning about one."""
    live = {**LIVE, "apply": ToolSpec(name="apply", hidden=True)}
    assert "apply" not in DEPLOYMENT.started(requested(), live).tools
    for cause in ("user", "task", "job", "report"):
        with pytest.raises(CannotOpen, match="apply"):
            DEPLOYMENT.started(requested(["apply"]).model_copy(update={"cause": cause}), live)
    called = DEPLOYMENT.started(requested(["apply"]).model_copy(update={"cause": "call"}), live)
    assert ([*called.tools], called.warnings) == (["apply"], [])


def test_a_person_applies_what_an_agent_may_not_call() -> None:
    """A proposal of a session, whatever tools its agent has; any other call is bounded by the agent."""
    live = {**LIVE, "apply": ToolSpec(name="apply", hidden=True)}
    call = requested(["apply"], agent="painter").model_copy(update={"cause": "call"})
    with pytest.raises(CannotOpen, match="apply"):
        DEPLOYMENT.started(call, live)
    apply = call.model_copy(update={"session_id": "s"})
    started = DEPLOYMENT.started(apply, live)
    assert ([*started.tools], started.warnings) == (["apply"], [])
    assert DEPLOYMENT.absent(apply, LIVE) == ["apply"]
    assert "apply" not in DEPLOYMENT.started(apply.model_copy(update={"key_tools": ["draw"]}), live).tools


def test_no_warning_names_a_tool_that_the_key_does_not_allow() -> None:
    """The caller would learn of it, and could do nothing about it."""
    assert DEPLOYMENT.absent(requested(agent="painter"), LIVE) == ["frame"]
    assert DEPLOYMENT.absent(requested(agent="painter", key_tools=["draw"]), LIVE) == []
    assert DEPLOYMENT.absent(requested(agent="painter", tools=["draw", "frame"], key_tools=["frame"]), LIVE) == [
        "frame"
    ]


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({}, True),
        ({"cause": "task", "depth": 1}, True),
        ({"cause": "task", "depth": 2}, False),
        ({"cause": "report", "hops": 1}, False),
        ({"cause": "job"}, False),
        ({"cause": "summary"}, False),
        ({"agent": "painter"}, False),
    ],
)
def test_tasks_are_allowed_up_to_a_depth(changes: dict[str, Any], *, allowed: bool) -> None:
    """Where they are not, the run is not offered them. A task is shown no conversation."""
    agents = {**AGENTS, "default": Agent(tasks=AgentTasks(), limits={"max_steps": 3})}
    request = requested().model_copy(update={"session_id": "s", **changes})
    started = replace(DEPLOYMENT, agents=agents).started(request, LIVE)
    assert (started.tasks is not None) == allowed
    assert (started.memory is not None) == (request.cause in {"user", "report"})


@pytest.mark.parametrize(
    ("model", "characters"),
    [("openai/gpt-4", 8192 * 4 // 2), ("openai/gpt-5.4-mini", 400_000), ("openai/scripted", 400_000), ("", 400_000)],
)
def test_a_conversation_has_half_of_a_small_context(model: str, characters: int) -> None:
    """Of a known one, and never more than the deployment allows."""
    assert max_characters(model, 400_000) == characters


async def test_models_and_whether_they_take_images_are_in_the_catalogue(bus: Bus) -> None:
    """Every model that the planner uses, with its agents; what is declared wins over LiteLLM's table."""
    blind, name = "openai/blind", f"openai/{new_id()}"
    agents = parse_agents({"painter": {"model": MODEL}, "writer": {"model": blind, "vision": "lenient"}})
    support = resolution.VisionSupport(lambda model: model == blind, {MODEL: True, blind: False})
    found = {profile.model: profile for profile in resolution.profiles(support, agents, MODEL, [name])}
    own: dict[str, Any] = {"vision": {"writer": "lenient"}}
    assert found[MODEL] == ModelProfile(model=MODEL, images="seen", agents=["default", "painter"], **own)
    assert found[blind] == ModelProfile(model=blind, images="refused", agents=["writer"], **own)
    assert found[name] == ModelProfile(model=name, images="refused", **own)
    assert await resolution.publish_profiles(bus, [found[name]])
    kept = await Bucket(bus, keys.CATALOGUE_BUCKET).get(keys.model_key(name))
    assert kept.parsed(ModelProfile) == found[name]
