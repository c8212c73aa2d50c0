"""Which models a request may name: a name decides where the prompt goes, and what it costs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import ValidationError

from services.planner.settings import PlannerSettings
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, answer
from tests.support.run_services import MODEL


@asynccontextmanager
async def trap() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that nobody configured: its address, and what it was sent."""
    received: list[bytes] = []

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.read(1000))
        writer.close()

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", received


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "model",
    [
        "oobabooga/{trap}/x",
        "openai/{trap}/v1",
        "github_copilot/gpt-4",
        "scripted",
        "openai/openai/scripted",
        "OPENAI/scripted",
        " openai/scripted",
        "openai/scripted\r\nX-Evil: 1",
        "openai/\x00",
        "*",
        "",
    ],
)
async def test_a_model_that_nobody_configured_is_not_asked(plan: Plan, provider: ModelServer, model: str) -> None:
    """Not the planner's only check: the gateway refuses before, where it knows the planner.

    Nothing is sent anywhere.
    """
    planning = await plan()
    async with trap() as (url, received):
        story = await planning.tell(model=model.replace("{trap}", url))
        assert (story.end.type, story.end.code) == ("error", "bad_request")
        assert f"there are: builtin/rehearsal, {MODEL}" in story.end.error
        assert "\r" not in story.end.error
        assert story.end.usage.model_calls == 0
        assert not received
    assert not provider.ledger


async def test_what_the_deployment_names_may_be_named(plan: Plan, provider: ModelServer) -> None:
    """The model itself, others, fallbacks, the triage's, those of agents, and the demo model."""
    agents = {
        "a": {"model": "openai/a", "fallbacks": ["openai/b"], "models": ["openai/c"]},
        "d": {"reflection": {"threshold": 0.5, "model": "openai/d"}},
    }
    planning = await plan(models=["openai/e"], fallback_models=["openai/f"], triage_model="openai/g", agents=agents)
    provider.say(answer("done"))
    for model in [MODEL, *(f"openai/{letter}" for letter in "abcdefg"), "builtin/rehearsal"]:
        story = await planning.tell(model=model)
        assert story.end.type == "done", model
        assert story.of("run_started")[0].model == model
    assert (await planning.tell(model="openai/h")).end.code == "bad_request"


LISTS = pytest.mark.parametrize("setting", ["models", "fallback_models"])


@pytest.mark.parametrize("text", ["[", '["a\\nb"]', "[1]", "openai/a b"])
@LISTS
def test_names_that_are_none_are_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, setting: str, text: str) -> None:
    """White space and control characters are in no model's name."""
    monkeypatch.setenv(f"RUNWIRE_{setting.upper()}", text)
    with pytest.raises(ValidationError):
        PlannerSettings()
