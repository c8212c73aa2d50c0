"""What docs/tasks.md shows is true."""

import json
import tomllib

import pytest

from services.planner.agents import parse_agents
from services.planner.replies.actions.normalize import normalize_action
from tests.support.documents import blocks

PAGE = "tasks.md"


@pytest.mark.parametrize("block", blocks(PAGE, "toml"))
def test_the_agents_file_is_one(block: str) -> None:
    """As a planner reads it."""
    assert any(agent.tasks is not None for agent in parse_agents(tomllib.loads(block)).values())


@pytest.mark.parametrize("block", blocks(PAGE, "json"))
def test_the_action_is_one(block: str) -> None:
    """As a planner reads a reply."""
    action = normalize_action(block).action
    assert action is not None
    assert action.model_dump() == json.loads(block)
