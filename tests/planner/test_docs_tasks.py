"""What docs/tasks.md shows is true."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from contracts.tasks import TASK_EVENT_TYPES, TaskPolicy
from services.planner.agents import parse_agents
from services.planner.replies.actions import normalize_action

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The blocks of code in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def cells(*heads: str) -> list[list[str]]:
    """The cells of the table with these heads."""
    table = TEXT.partition(f"| {' | '.join(heads)} |\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]


def words(text: str) -> list[str]:
    """What stands in code in a text."""
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("block", blocks("toml"))
def test_the_agents_file_is_one(block: str) -> None:
    """As a planner reads it."""
    assert all(agent.tasks is not None for agent in parse_agents(tomllib.loads(block)).values())


@pytest.mark.parametrize("block", blocks("json"))
def test_the_action_is_one(block: str) -> None:
    """As a planner reads a reply."""
    action = normalize_action(block).action
    assert action is not None
    assert action.model_dump() == json.loads(block)


def test_the_settings_are_those_of_a_policy() -> None:
    """Each with its default."""
    listed = {words(name)[0]: default.strip("`") for name, default, _ in cells("setting", "default", "means")}
    defaults = {name: field.default for name, field in TaskPolicy.model_fields.items()}
    assert listed == {
        name: "unset" if value is None else f"{value:g}" if isinstance(value, int | float) else value
        for name, value in defaults.items()
    }


def test_the_events_are_those_of_a_session() -> None:
    """All of them, once."""
    listed = [name for first, *_ in cells("event", "says") for name in words(first)]
    assert sorted(listed) == sorted(TASK_EVENT_TYPES)
