"""The agents file: what it may say, and how it complains."""

from pathlib import Path

import pytest

from services.planner.agents import AgentTasks, InvalidAgents, load_agents, parse_agents

TOML = """
[analyst]
system_prompt = "You look at sales."
skills = ["Round to whole euros."]
tools = ["sum_column", "draw_chart"]
model = "openai/gpt-5.4-mini"
fallbacks = ["anthropic/claude-sonnet-4-6"]
reasoning_effort = "low"
limits = { max_steps = 5, deadline_s = 30 }
memory = { recent_turns = 3 }
"""


def test_a_file_adds_agents(tmp_path: Path) -> None:
    """And the default stays."""
    file = tmp_path / "agents.toml"
    file.write_text(TOML)
    agents = load_agents(file)
    assert set(agents) == {"default", "analyst"}
    assert agents["analyst"].limits == {"max_steps": 5, "deadline_s": 30}
    assert agents["analyst"].memory == {"recent_turns": 3}
    assert agents["analyst"].tools == ["sum_column", "draw_chart"]


def test_an_agent_may_have_background_tasks() -> None:
    """An empty table has the defaults; without one there are none."""
    agents = parse_agents({"a": {"tasks": {}}, "b": {"tasks": {"max_per_run": 3}}, "c": {}})
    assert agents["a"].tasks == AgentTasks()
    assert agents["b"].tasks == AgentTasks(max_per_run=3)
    assert agents["c"].tasks is None


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({"a": {"modell": "x"}}, r"a\.modell: there is no such field"),
        ({"a": {"limits": {"max_stepz": 1}}}, r"a\.limits.*max_stepz"),
        ({"a": {"limits": {"max_steps": 0}}}, r"a\.limits.*greater than or equal to 1"),
        ({"a": {"limits": {"max_steps": None}}}, r"a\.limits.*max_steps"),
        ({"a": {"tools": ["no such name!"]}}, r"a\.tools\.0: String should match"),
        ({"a": {"strategy": "guess"}}, r"a\.strategy: Input should be"),
        ({"a b": {}}, r"a b.*String should match"),
        ({"a": {"modell": 1}, "b": {"model": ""}}, r"a\.modell.*; b\.model"),
        ({"a": 3}, r"a: Input should be"),
        ({"a": {"tasks": {"max_runs": 3}}}, r"a\.tasks\.max_runs"),
        ({"a": {"tasks": {"max_depth": 0}}}, r"a\.tasks\.max_depth"),
        ({"a": {"memory": {"turns": 3}}}, r"a\.memory.*turns"),
        ({"a": {"memory": {"recent_turns": None}}}, r"a\.memory.*recent_turns"),
        ({"a": {"approvals": [{"name": "x", "tools": ["*", "pay"]}]}}, r"a\.approvals.*'x'.*must be alone"),
        ({"a": {"approvals": [{"name": "x", "tools": ["p"], "arguments": {"type": 1}}]}}, r"a\.approvals.*'x'.*Schema"),
        ({"a": {"approvals": [{"name": "x", "tools": ["p"], "aks": "never"}]}}, r"a\.approvals\.0\.aks"),
    ],
)
def test_a_wrong_entry_is_named(entries: dict[str, object], complaint: str) -> None:
    """Every fault at once, with its place."""
    with pytest.raises(InvalidAgents, match=complaint):
        parse_agents(entries)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.toml", "= 3", "is not TOML"),
        ("a.json", "{", "is not JSON"),
        ("a.json", "[]", "a table of agents"),
        ("a.toml", None, "cannot be read"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, name: str, text: str | None, complaint: str) -> None:
    """With what is wrong with it."""
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidAgents, match=f"{name}.*{complaint}"):
        load_agents(file)
