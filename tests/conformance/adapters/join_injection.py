"""A plan's branches, and the join that receives their results."""

from typing import Any

from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.planner.run.calls.joins import Branch, JoinCall, NoJoin, check_plan, resolve_join
from tests.support.model_server import action, answer
from tests.support.run_services import Handler, Story
from tests.support.vector_tokens import assert_matches, decoded

from ._whole_run import stack

JOIN = "j"
TYPES = {"list": "array", "int": "integer", "str": "string", "dict": "object", "bool": "boolean", "float": "number"}
TYPES |= {name: name for name in TYPES.values()}


def check(vector: dict[str, Any]) -> None:
    """Check the plan, settle its branches as the vector says, and resolve the join."""
    given, expected = decoded(vector["input"]), decoded(vector["expected"])
    specs = known_tools(vector)
    rejected = bool(check_plan({"steps": given["steps"]}, specs))
    assert rejected == (expected.get("plan") == "rejected")
    if rejected:
        assert expected.get("ran", []) == []
        return
    branches = [
        Branch(step["node"], step.get("args", {}), step.get("result"), failure=step.get("error"))
        for step in given["steps"]
    ]
    outcome = resolve_join({"join": given.get("join")}, branches, specs)
    if isinstance(outcome, JoinCall) and given.get("join_error") is not None:
        outcome = NoJoin("tool_error", given["join_error"])
    if "join" in expected:
        compare(outcome, expected)
    if "results" in expected:
        results = [branch.observation for branch in branches if branch.failure is None]
        assert_matches(results, expected["results"], "the results for the model")
    if "ran" in expected:
        called = [JOIN] if isinstance(outcome, JoinCall) else []
        assert expected["ran"] == [*(branch.node for branch in branches), *called]


async def check_runtime(vector: dict[str, Any]) -> None:
    """A whole run: the model asks for the plan, real tools do what the vector says, and the log shows the join."""
    given, expected = decoded(vector["input"]), decoded(vector["expected"])
    received: list[dict[str, Any]] = []
    specs = known_tools(vector)
    tools = {name: (spec, handler_of(given, name, received)) for name, spec in specs.items()}
    steps = [{"node": step["node"], "args": step.get("args", {})} for step in given["steps"]]
    story = await stack().tell([action("plan", steps=steps, join=given.get("join")), answer("done")], tools)
    assert story.end.type == "done"
    if expected.get("plan") == "rejected":
        assert [each.tool for each in story.of("observed")] == expected.get("ran", [])
        assert story.of("repaired"), "the model gets the reason"
        return
    branches = [each for each in story.of("observed") if not each.call_id.endswith("-join")]
    branches.sort(key=lambda each: int(each.call_id.rpartition("-")[2]))
    if "results" in expected:
        results = [branch.observation for branch in branches if branch.status == "succeeded"]
        assert_matches(results, expected["results"], "the results for the model")
    assert became(story, received) == expected.get("join", became(story, received))
    if expected.get("join") == "called" and "args" in expected:
        assert_matches(received[0], expected["args"], "the arguments of the join")
    for word in (expected.get("code"), expected.get("reason")):
        assert word is None or f"({word})" in note_of(story)


def became(story: Story, received: list[dict[str, Any]]) -> str:
    if "(branch_failures)" in note_of(story):
        return "skipped"
    if note_of(story):
        return "error"
    return "called" if received else "absent"


def note_of(story: Story) -> str:
    """The line that tells the model why a join did not run."""
    return next((step.note for step in story.of("step") if step.note and step.status != "started"), "")


def handler_of(given: dict[str, Any], name: str, received: list[dict[str, Any]]) -> Handler:
    """A tool that yields what the vector says for these arguments; the join keeps what it is called with."""

    async def branch(args: dict[str, Any]) -> Any:
        step = next(step for step in given["steps"] if step["node"] == name and step.get("args", {}) == args)
        return Fault(code="tool_error", reason=step["error"]) if step.get("error") is not None else step["result"]

    async def join(args: dict[str, Any]) -> Any:
        received.append(args)
        failed = given.get("join_error")
        return {"joined": True} if failed is None else Fault(code="tool_error", reason=failed)

    return join if name == JOIN else branch


def compare(outcome: Any, expected: dict[str, Any]) -> None:
    """Compare the join's outcome, its code or reason, and the arguments of a call."""
    names = {type(None): "absent", JoinCall: "called", NoJoin: "error"}
    is_skipped = isinstance(outcome, NoJoin) and outcome.code == "branch_failures"
    assert ("skipped" if is_skipped else names[type(outcome)]) == expected["join"], outcome
    if isinstance(outcome, JoinCall) and "args" in expected:
        assert_matches(outcome.args, expected["args"], "the arguments of the join")
    if isinstance(outcome, NoJoin):
        assert outcome.code == expected.get("reason" if is_skipped else "code", outcome.code)
        assert "\n" not in outcome.line


def known_tools(vector: dict[str, Any]) -> dict[str, ToolSpec]:
    """Return the tools of a vector: every step that yields something, and the join.

    A vector does not tell what the tools of its steps take. Where its plan is to be rejected they require a text `q`,
    else they take anything.
    """
    given = vector["input"]
    question = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    taken = question if vector["expected"].get("plan") == "rejected" else {"type": "object"}
    specs = {JOIN: ToolSpec(name=JOIN, input_schema=join_schema(given.get("join_schema") or {}))}
    for step in given["steps"]:
        if "result" in step or "error" in step:
            specs[step["node"]] = ToolSpec(name=step["node"], input_schema=taken)
    return specs


def join_schema(arguments: dict[str, str]) -> dict[str, Any]:
    """Return the schema of the join's arguments, all of them optional."""
    properties = {name: {"type": TYPES[kind]} if kind in TYPES else {} for name, kind in arguments.items()}
    return {"type": "object", "properties": properties}
