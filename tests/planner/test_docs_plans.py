"""What docs/plans.md shows is true."""

import json
import re
import tomllib
from typing import Any

import pytest
from pydantic import TypeAdapter

from contracts.runs.events import Called, Step
from examples.plans.blog_tools import create_blog_post, research_blog
from runwire.plans import DirectResponse, Plan, PlanBounds, check_plan, is_candidate, parse_template, read_plan, report
from runwire.plans.schema_folding import MAX_STEPS
from runwire.plans.templates import holds_embedded
from services.planner.agents import parse_agents
from services.planner.strategies.planned.execution import ANSWER_AFTER_DEADLINE_MS, MAX_INSERTED_BYTES
from services.planner.strategies.planned.strategy import (
    MAX_ALL_RESULTS_CHARACTERS,
    MAX_RESULT_CHARACTERS,
    planning_function,
)
from services.shared.runs.plan_settings import PlanSettings
from tests.support.documents import blocks, in_code, rows, text_of

PAGE = "plans.md"
TEXT = text_of(PAGE)
SPECS = {each.name: each.spec for each in (create_blog_post, research_blog)}
OBJECTS: list[dict[str, Any]] = [json.loads(block) for block in blocks(PAGE, "json")]
EVENTS: TypeAdapter[Step | Called] = TypeAdapter(Step | Called)


def test_the_plans_are_plans() -> None:
    """As a planner reads a reply; and the example's tools take the one with calls."""
    shown = {each["type"]: read_plan(each) for each in OBJECTS if each.get("type") in {"tool_calls", "direct_response"}}
    plan, answer = shown["tool_calls"], shown["direct_response"]
    assert isinstance(plan, Plan)
    assert isinstance(answer, DirectResponse)
    function = planning_function(list(SPECS.values()))["function"]
    assert f"`{function['name']}`" in TEXT
    offered = function["parameters"]["properties"]["calls"]["items"]["properties"]["tool_name"]["enum"]
    assert offered == sorted(SPECS)
    checked = check_plan(plan.calls, SPECS)
    assert (checked.errors, checked.warnings) == ([], [])


@pytest.mark.parametrize("block", blocks(PAGE, "toml"))
def test_the_agents_file_is_one(block: str) -> None:
    """As a planner reads it."""
    assert parse_agents(tomllib.loads(block))["writer"].strategy == "planned"


@pytest.mark.parametrize(("written", "is_"), rows(PAGE, "written", "is"))
def test_what_is_a_template(written: str, is_: str) -> None:
    """And what is an error, or a text."""
    [text] = in_code(written)
    is_template = parse_template(text) is not None
    assert is_template == is_.startswith("a template")
    assert (is_candidate(text) and not is_template) == ("error" in is_)
    assert (holds_embedded(text) and not is_candidate(text)) == ("embedded_template_not_resolved" in is_)


def test_the_limits_are_those_of_the_settings() -> None:
    """With their defaults; and those in the text."""
    listed = {in_code(name)[0]: default for name, default, _ in rows(PAGE, "setting", "default", "limits")}
    defaults = {name: PlanSettings.model_fields[name].default for name in PlanSettings.__annotations__}
    written = {name: int(text.removesuffix(" KiB")) << (10 if "KiB" in text else 0) for name, text in listed.items()}
    assert written == {f"RUNWIRE_{name.upper()}": value for name, value in defaults.items()}
    assert PlanBounds() == PlanBounds(*defaults.values())
    prose = " ".join(TEXT.split())
    for number in (MAX_RESULT_CHARACTERS, MAX_ALL_RESULTS_CHARACTERS, MAX_STEPS, PlanBounds().max_plan_bytes):
        assert f"{number:,}" in prose
    assert f"more than {MAX_INSERTED_BYTES >> 10} KiB together" in prose
    assert f"has {ANSWER_AFTER_DEADLINE_MS // 1000} seconds more" in prose


def test_the_events_are_events() -> None:
    """With fields that they have."""
    shown = [each for each in OBJECTS if each.get("type") in {"step", "called"}]
    assert len(shown) == 2
    for each in shown:
        assert EVENTS.validate_python(each).model_dump(mode="json", exclude_unset=True) == each
    fields = {field for row in rows(PAGE, "`node`", "`status`", "has") for field in in_code(row[2])}
    assert fields - {"failed"} <= set(Step.model_fields)


def test_what_the_commands_check() -> None:
    """The plan of the page that is wrong, and the one that is right."""
    [commands] = [block for block in blocks(PAGE, "sh") if "plan check" in block]
    plans = [json.loads(found) for found in re.findall(r"^(\{.*?^\]\})$", commands, re.MULTILINE | re.DOTALL)]
    plans += [json.loads(found) for found in re.findall(r"echo '(.*)' >", commands)]
    assert [report(plan, SPECS).valid for plan in plans] == [True, False]
