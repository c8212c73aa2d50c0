"""Plans: checked before anything runs, and joined from what their branches yield."""

import json
from typing import Any

import pytest

from contracts.runs.actions import Join
from contracts.runs.events import Observed, PlannedCall
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.planner.run.calls.joins import (
    Branch,
    JoinAbsent,
    JoinCall,
    JoinInvalid,
    JoinSkipped,
    branch_of,
    check_join,
    check_plan,
    failed_join,
    read_join,
    resolve_join,
    results_of,
)

LIST, INTEGER, TEXT = {"type": "array"}, {"type": "integer"}, {"type": "string"}
WELL_KNOWN = {
    "results": LIST,
    "branches": LIST,
    "failures": LIST,
    "expect": INTEGER,
    "success_count": INTEGER,
    "failure_count": INTEGER,
}
REF = {
    "artifact_id": "0" * 32,
    "mime_type": "application/json",
    "size": 43_000,
    "sha256": "a" * 64,
    "json_type": "dict",
}


def spec(name: str, /, **schema: Any) -> ToolSpec:
    """A tool and the schema of its arguments."""
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


def test_a_plan_whose_steps_all_fit_may_run() -> None:
    """Missing arguments count as none given."""
    assert check_plan({"steps": [{"node": "ask", "args": {"q": "x"}}, {"node": "j"}]}, SPECS) == []


@pytest.mark.parametrize("steps", [None, [], "ask", {"node": "ask"}])
def test_a_plan_without_steps_runs_nothing_and_says_so(steps: Any) -> None:
    """Whatever stood in their place."""
    assert [complaint.code for complaint in check_plan({"steps": steps}, SPECS)] == ["empty_plan"]


def test_every_wrong_step_is_named() -> None:
    """By its place, its tool and what was expected of which argument, each on one line."""
    plan = {
        "steps": [
            {"node": "zzz\nignore this"},
            {"node": "ask", "args": {"q": 5}},
            {"node": "ask", "args": []},
            {"node": "plan"},
            3,
        ]
    }
    found = check_plan(plan, SPECS)
    assert [(complaint.step, complaint.code) for complaint in found] == [
        (0, "unknown_node"),
        (1, "invalid_args"),
        (2, "invalid_args"),
        (3, "unknown_node"),
        (4, "unknown_node"),
    ]
    assert (
        found[0].line
        == "step 1: unknown tool `zzz\\nignore this`; the tools are `ask`, `j`, `only`, `open`, `any`, `referring`"
    )
    assert found[1].line == 'step 2 (`ask`): q: 5 is not of type "string"'


def test_a_long_catalogue_is_not_repeated_in_a_complaint() -> None:
    """The model has it in its prompt."""
    specs = {f"t{number}": spec(f"t{number}") for number in range(50)}
    assert check_plan({"steps": [{"node": "x"}]}, specs)[0].line.endswith("`t19` and 30 more")


@pytest.mark.parametrize(
    "join", [None, "j", [], 5, {}, {"node": None}, {"node": " "}, {"inject": {"results": "$results"}}]
)
def test_what_names_no_tool_is_no_join(join: Any) -> None:
    """The results go to the model, without a note."""
    assert resolve_join({"join": join}, [A], SPECS) == JoinAbsent()


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
    assert isinstance(read_join({"join": {"node": "j"} | join}), JoinInvalid)
    outcome: Any = resolve_join({"join": {"node": "j"} | join}, [A], SPECS)
    assert outcome.code == "invalid_join"
    assert outcome.line.startswith("The join did not run (invalid_join): `join.")


def test_what_is_wrong_with_a_join_is_known_before_its_branches_run() -> None:
    """Tool and sources are checked against the run's tools."""
    assert check_join(Join(node="j", inject={"results": "$all"}), SPECS) is None
    unknown = check_join(Join(node="zzz"), SPECS)
    assert unknown is not None
    assert unknown.code == "unknown_node"
    wrong = check_join(Join(node="j", inject={"results": "$everything"}), SPECS)
    assert wrong is not None
    assert wrong.code == "unknown_source"
    assert "`$results`, `$all`, `$branches`, `$failures`" in wrong.line


def test_every_source_is_injected() -> None:
    """In step order, over static arguments of the same name."""
    inject = {
        "results": " $all ",
        "branches": "$branches",
        "failures": "$failures",
        "expect": "$expect",
        "success_count": "$success_count",
    }
    outcome = joined([A, BROKEN, B], args={"topic": "AI", "results": ["static"], "failure_count": 7}, inject=inject)
    failure = {"node": "ask", "args": {"q": "C"}, "error": "boom"}
    assert outcome == JoinCall(
        "j",
        {
            "topic": "AI",
            "failure_count": 7,
            "results": [{"v": 1}, {"v": 2}],
            "branches": [
                {"node": "ask", "args": {"q": "A"}, "observation": {"v": 1}},
                failure,
                {"node": "ask", "args": {"q": "B"}, "observation": {"v": 2}},
            ],
            "failures": [failure],
            "expect": 3,
            "success_count": 2,
        },
    )


def test_without_inject_the_well_known_names_are_filled() -> None:
    """Those that the tool has and the model did not give itself."""
    assert joined([A], "only") == JoinCall("only", {"results": [{"v": 1}]})
    assert joined([A], "referring") == JoinCall("referring", {"results": [{"v": 1}]})
    assert joined([A], "open", args={"topic": "AI"}) == JoinCall("open", {"topic": "AI"})
    assert joined([A], args={"results": ["mine"]}).args["results"] == ["mine"]
    assert joined([A], inject={}) == JoinCall("j", {})
    assert joined([A], inject=None).args["expect"] == 1


def test_an_argument_that_the_tool_does_not_have_is_not_injected() -> None:
    """Unless the tool takes any argument."""
    assert joined([A], inject={"everything": "$results"}) == JoinCall("j", {})
    assert joined([A], "open", inject={"everything": "$results"}) == JoinCall("open", {"everything": [{"v": 1}]})
    assert joined([A], "any", inject={"everything": "$expect"}) == JoinCall("any", {"everything": 1})


def test_an_inject_inside_a_mapping_is_taken_out() -> None:
    """A form that other runtimes have taught to models."""
    assert joined([A], inject={"mapping": {"results": "$results"}}) == JoinCall("j", {"results": [{"v": 1}]})


def test_a_join_is_skipped_when_a_branch_failed_unless_it_asks_for_failures() -> None:
    """By `inject`, or by the names of its arguments."""
    assert joined([A, BROKEN], inject={"results": "$results"}) == JoinSkipped(
        "The join did not run (branch_failures): 1 of 2 branches failed."
    )
    assert isinstance(joined([A, BROKEN], inject={}), JoinSkipped)
    assert isinstance(joined([A, BROKEN], "only"), JoinSkipped)
    assert joined([A, BROKEN], inject={"failure_count": "$failure_count"}) == JoinCall("j", {"failure_count": 1})
    assert joined([A, BROKEN]).args["failure_count"] == 1


def test_a_wrong_join_is_wrong_even_if_a_branch_failed() -> None:
    """The model can correct it at once."""
    assert joined([A, BROKEN], "zzz").code == "unknown_node"


def test_a_complaint_about_arguments_quotes_no_results() -> None:
    """They may hold what the model may not see."""
    secret = Branch("ask", {}, {"blob": "<artifact:str size=6B>"}, {"blob": "SECRET"})
    outcome = joined([secret], inject={"topic": "$results"})
    assert outcome.code == "invalid_args"
    assert outcome.line == 'The join did not run (invalid_args): topic: the value is not of type "string".'


def test_artifacts_of_branches_are_injected_by_value_or_by_reference() -> None:
    """Arguments with a reference are checked once the value is back in its place."""
    light = Branch("ask", {}, {"blob": "<artifact:str size=4B>"}, {"blob": "abcd"})
    heavy = Branch("ask", {}, {"chart": "<artifact:dict size=42KB>"}, {"chart": REF})
    assert joined([light], "only").args == {"results": [{"blob": "abcd"}]}
    assert joined([light, heavy], "only").args == {"results": [{"blob": "abcd"}, {"chart": REF}]}
    assert joined([heavy], inject={"topic": "$results"}) == JoinCall("j", {"topic": [{"chart": REF}]})
    assert results_of([light, BROKEN]) == [{"blob": "<artifact:str size=4B>"}]


def test_a_branch_is_a_call_and_its_outcome() -> None:
    """As they stand in the log."""
    call = PlannedCall(call_id="1", tool="ask", args={"q": "A"})
    settled = Observed(call_id="1", tool="ask", status="succeeded", observation={"v": 1}, artifacts={"x": 1})
    assert branch_of(call, settled) == Branch("ask", {"q": "A"}, {"v": 1}, {"x": 1})
    failure = Fault(code="tool_timed_out", reason="silent for 5 s")
    assert (
        branch_of(call, Observed(call_id="1", tool="ask", status="failed", failure=failure)).failure == "silent for 5 s"
    )
    assert branch_of(call, Observed(call_id="1", tool="ask", status="failed")).failure == "the call failed"


def test_a_join_that_failed_has_a_note_with_its_reason() -> None:
    """On one line."""
    assert failed_join(Fault(code="tool_error", reason="kaput\nnow")) == JoinInvalid(
        "tool_error", "The join failed (tool_error): kaput\\nnow"
    )
    assert failed_join(Fault(code="invalid_args", reason="x")).code == "invalid_args"
    assert failed_join(None).code == "tool_error"


def test_a_join_read_from_the_log_is_resolved_like_the_models_own() -> None:
    """Reading it twice changes nothing."""
    join = read_join({"join": {"node": " j ", "inject": {"results": "$results"}}})
    assert join == Join(node="j", inject={"results": "$results"})
    assert resolve_join({"join": join}, [A], SPECS) == JoinCall("j", {"results": [{"v": 1}]})
    stored: Any = resolve_join({"join": json.loads(Join(node="j").model_dump_json())}, [A], SPECS)
    assert stored.args["expect"] == 1


def test_a_tool_whose_schema_cannot_be_used_does_not_end_the_run() -> None:
    """The model reads that the arguments cannot be checked."""
    specs = {"bad": spec("bad", properties={"a": {"type": "nonsense"}})}
    assert check_plan({"steps": [{"node": "bad", "args": {}}]}, specs)[0].code == "invalid_args"
    outcome = resolve_join({"join": {"node": "bad"}}, [A], specs)
    assert isinstance(outcome, JoinInvalid)
    assert outcome.code == "invalid_args"
