"""Plans: checked before anything runs, and joined from what their branches yield."""

from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from services.planner.run.calls.joins import Branch, JoinCall, NoJoin, check_plan, read_join, resolve_join

LIST, INTEGER, TEXT = {"type": "array"}, {"type": "integer"}, {"type": "string"}
LISTS, NUMBERS = ("results", "branches", "failures"), ("expect", "success_count", "failure_count")
WELL_KNOWN = dict.fromkeys(LISTS, LIST) | dict.fromkeys(NUMBERS, INTEGER)


def spec(name: str, /, **schema: Any) -> ToolSpec:
    return ToolSpec(name=name, input_schema={"type": "object"} | schema)


SPECS = {
    "ask": spec("ask", properties={"q": TEXT}, required=["q"]),
    "j": spec("j", properties=WELL_KNOWN | {"topic": TEXT}),
    "only": spec("only", properties={"results": LIST}, additionalProperties=False),
    "open": spec("open", properties={"topic": TEXT}, additionalProperties=True),
    "any": spec("any"),
    "referring": spec("referring", **{"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"results": LIST}}}}),
}
A = Branch("ask", {"q": "A"}, {"v": 1})
B = Branch("ask", {"q": "B"}, {"v": 2})
BROKEN = Branch("ask", {"q": "C"}, failure="boom")


def joined(branches: list[Branch], node: str = "j", **join: Any) -> Any:
    """The join after these branches: it runs, is skipped, or is wrong."""
    return resolve_join({"join": {"node": node, **join}}, branches, SPECS)


@pytest.mark.parametrize("steps", [None, [], "ask", {"node": "ask"}])
def test_a_plan_without_steps_runs_nothing_and_says_so(steps: Any) -> None:
    """Whatever stood in their place."""
    assert check_plan({"steps": steps}, SPECS) == ["the plan has no steps, so nothing ran"]


def test_every_wrong_step_is_named() -> None:
    """By its place, its tool and what was expected of which argument, each on one line."""
    args = [{"node": "ask", "args": {"q": 5}}, {"node": "ask", "args": []}]
    found = check_plan({"steps": [{"node": "zzz\nignore this"}, *args, {"node": "plan"}, 3]}, SPECS)
    tools = "the tools are `ask`, `j`, `only`, `open`, `any`, `referring`"
    assert found == [
        f"step 1: unknown tool `zzz\\nignore this`; {tools}",
        'step 2 (`ask`): q: 5 is not of type "string"',
        'step 3 (`ask`): [] is not of type "object"',
        f"step 4: unknown tool `plan`; {tools}",
        f"step 5: unknown tool (a name must be a string); {tools}",
    ]


@pytest.mark.parametrize(
    "join",
    [
        {"node": 5},
        {"node": ["j"]},
        {"args": "x"},
        {"args": [1]},
        {"inject": ["$results"]},
        {"inject": "$results"},
        {"inject": {"results": ["$results"]}},
        {"inject": {"results": None}},
        {"inject": {"results": "$results", "mapping": {"a": "$all"}}},
    ],
)
def test_a_join_of_the_wrong_shape_is_a_complaint(join: dict[str, Any]) -> None:
    """It is not dropped without a complaint."""
    assert isinstance(read_join({"join": {"node": "j"} | join}), NoJoin)
    outcome: Any = resolve_join({"join": {"node": "j"} | join}, [A], SPECS)
    assert outcome.code == "invalid_join"
    assert outcome.line.startswith("The join did not run (invalid_join): `join.")


def test_an_argument_that_the_tool_does_not_have_is_not_injected() -> None:
    """Unless the tool takes any argument."""
    assert joined([A], inject={"everything": "$results"}) == JoinCall("j", {})
    assert joined([A], "open", inject={"everything": "$results"}) == JoinCall("open", {"everything": [{"v": 1}]})
    assert joined([A], "any", inject={"everything": "$expect"}) == JoinCall("any", {"everything": 1})


def test_a_wrong_join_is_wrong_even_if_a_branch_failed() -> None:
    """The model can correct it at once."""
    assert joined([A, BROKEN], "zzz").code == "unknown_node"


def test_a_complaint_about_arguments_quotes_no_results() -> None:
    """They may hold what the model may not see."""
    secret = Branch("ask", {}, {"blob": "<artifact:str size=6B>"}, {"blob": "SECRET"})
    outcome = joined([secret], inject={"topic": "$results"})
    assert outcome.code == "invalid_args"
    assert outcome.line == 'The join did not run (invalid_args): topic: the value is not of type "string".'
