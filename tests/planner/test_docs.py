"""What docs/planner.md and docs/tasks.md show is true."""

import json
import re
import tomllib
from typing import get_args

import pytest

from contracts.runs import events
from contracts.runs.decisions import FINAL_RESPONSE, PLAN, RESERVED, FinalResponseArgs
from contracts.runs.requests import StrategyName
from services.planner.agents import Agent, parse_agents
from services.planner.replies.actions.normalize import normalize_action
from services.planner.replies.strict_json import MAX_DEPTH
from services.planner.run.calls.joins import SOURCES
from services.planner.settings import PlannerSettings
from tests.support.documents import blocks, in_code, rows, text_of

PAGE, TASKS = "planner.md", "tasks.md"
TEXT = text_of(PAGE)
TOOLS = frozenset({"look"})


@pytest.mark.parametrize("block", [*blocks(PAGE, "json"), *blocks(TASKS, "json")])
@pytest.mark.parametrize("action_format", ["auto", "unified"])
def test_every_action_is_one(block: str, action_format: events.ActionFormat) -> None:
    """In every format."""
    action = normalize_action(block, action_format=action_format).action
    assert action is not None
    assert action.model_dump() == json.loads(block)


@pytest.mark.parametrize(("written", "means"), rows(PAGE, "written", "means"))
def test_what_is_written_means_what_it_says(written: str, means: str) -> None:
    """And is refused where two fields in strict JSON are asked for."""
    [reply], [plain] = in_code(written), in_code(means)
    action = normalize_action(reply, tools=TOOLS).action
    assert action is not None
    assert action.model_dump() == json.loads(plain)
    assert normalize_action(reply, tools=TOOLS, action_format="unified").action is None


@pytest.mark.parametrize(
    "reply",
    ['{"next_node": "look", "args": {"q": "cut', '{"x": 1}', '{"args": 1, "args": 2}', '{"next_node": 5}', "[" * 100],
)
def test_what_is_refused(reply: str) -> None:
    """With a complaint."""
    assert f"more than {MAX_DEPTH} levels" in TEXT
    assert normalize_action(reply).complaint


def test_the_tables_name_what_there_is() -> None:
    """Nodes, fields, sources."""
    assert [in_code(row[0])[0] for row in rows(PAGE, "`next_node`", "means", "`args`")[1:]] == [
        FINAL_RESPONSE,
        PLAN,
        "task",
    ]
    assert set(in_code(rows(PAGE, "`next_node`", "means", "`args`")[1][2])) == set(FinalResponseArgs.model_fields)
    assert all(f"`{word}`" in TEXT for word in RESERVED)
    assert [word for row in rows(PAGE, "source", "gives") for word in in_code(row[0])] == list(SOURCES)
    assert [in_code(row[0])[0] for row in rows(PAGE, "`strategy`", "asks the model", "described")] == list(
        get_args(StrategyName)
    )


def test_settings_and_fields_are_there() -> None:
    """Each variable is a setting, each key of an agent a field of it."""
    variables = {
        name.removeprefix("RUNWIRE_").lower().partition("=")[0] for name in re.findall(r"RUNWIRE_[A-Z_]+", TEXT)
    }
    assert variables <= set(PlannerSettings.model_fields)


def test_the_agents_file_is_one() -> None:
    """Its entries show the fields of an agent."""
    entries = {name: entry for block in blocks(PAGE, "toml") for name, entry in tomllib.loads(block).items()}
    agents = parse_agents(entries)
    assert agents["analyst"].limits["grace_s"] == 600
    shown = {field for entry in entries.values() for field in entry}
    assert shown <= set(Agent.model_fields)
    named = {"strategy", "system_prompt", "skills", "tools", "limits", "reflection", "models", "fallbacks"}
    assert named | {"vision_context"} <= shown
    others = blocks(TASKS, "toml")
    assert others
    for block in others:
        assert any(agent.tasks is not None for agent in parse_agents(tomllib.loads(block)).values())
