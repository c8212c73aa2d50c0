"""What docs/planner.md shows is true."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from contracts import events
from contracts.actions import FINAL_RESPONSE, PLAN, RESERVED, FinalResponseArgs
from contracts.runs import RunLimits
from services.planner.agents import Agent, parse_agents
from services.planner.replies.actions import normalize_action
from services.planner.replies.strict_json import MAX_DEPTH
from services.planner.run.joins import SOURCES
from services.planner.settings import PlannerSettings

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "planner.md").read_text(encoding="utf-8")
TOOLS = frozenset({"look"})


def blocks(language: str) -> list[str]:
    """The blocks of code in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def rows(*heads: str) -> list[list[str]]:
    """The cells of the table with these heads."""
    wanted = f"| {' | '.join(heads)} |\n"
    table = TEXT.partition(wanted)[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table]


def words(text: str) -> list[str]:
    """What stands in code in a text."""
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("block", blocks("json"))
@pytest.mark.parametrize("action_format", ["auto", "unified"])
def test_every_action_is_one(block: str, action_format: events.ActionFormat) -> None:
    """In every format."""
    action = normalize_action(block, action_format=action_format).action
    assert action is not None
    assert action.model_dump() == json.loads(block)


@pytest.mark.parametrize(("written", "means"), rows("written", "means"))
def test_what_is_written_means_what_it_says(written: str, means: str) -> None:
    """And is refused where two fields in strict JSON are asked for."""
    [reply], [plain] = words(written), words(means)
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
    """Nodes, fields, sources, limits with their defaults, events."""
    assert [words(row[0])[0] for row in rows("`next_node`", "means", "`args`")[1:]] == [FINAL_RESPONSE, PLAN, "task"]
    assert set(words(rows("`next_node`", "means", "`args`")[1][2])) == set(FinalResponseArgs.model_fields)
    assert all(f"`{word}`" in TEXT for word in RESERVED)
    assert [word for row in rows("source", "gives") for word in words(row[0])] == list(SOURCES)
    limits = {
        words(row[0])[0]: None if row[1] == "none" else float(row[1]) for row in rows("limit", "default", "counts")
    }
    assert limits == RunLimits().model_dump()
    documented = {word for row in rows("event", "says") for word in words(row[0])}
    of_tools = {"call_started", "tool_progress", "artifact_chunk", "artifact_stored"}
    assert documented == {model.model_fields["type"].default for model in events.KNOWN} - of_tools
    assert {status for row in rows("event", "says") if "`step`" in row[0] for status in words(row[1])} == {
        "started",
        "succeeded",
        "failed",
        "skipped",
        "invalid",
    }


def test_settings_and_fields_are_there() -> None:
    """Each variable is a setting, each key of an agent a field of it."""
    variables = {
        name.removeprefix("RUNWIRE_").lower().partition("=")[0] for name in re.findall(r"RUNWIRE_[A-Z_]+", TEXT)
    }
    assert variables <= set(PlannerSettings.model_fields)


def test_the_agents_file_is_one() -> None:
    """All its entries together show every field, but for the strategy, of which there is one so far."""
    entries = {name: entry for block in blocks("toml") for name, entry in tomllib.loads(block).items()}
    agents = parse_agents(entries)
    assert agents["analyst"].limits["grace_s"] == 600
    shown = {field for entry in entries.values() for field in entry}
    assert shown <= set(Agent.model_fields)
    assert {
        "system_prompt",
        "skills",
        "tools",
        "limits",
        "reflection",
        "models",
        "fallbacks",
        "vision_context",
    } <= shown
