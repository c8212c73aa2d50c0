"""The two forms of an action that the prompt asks for: a check of each, and the conversion into five fields.

`unified` has the fields `next_node` and `args`; `legacy` has five. The text around an object does not matter here.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from contracts.runs.actions import FINAL_RESPONSE, PLAN, PlannerAction
from services.planner.replies.actions.arguments import has_steps
from services.planner.replies.actions.final import says_something
from services.planner.replies.actions.names import STREAMED_KEYS, opcode_of

FIVE_FIELDS = ("thought", "next_node", "args", "plan", "join")
MAX_VALUE_CHARACTERS = 40


def two_field_deviation(obj: Any, tools: AbstractSet[str]) -> str:
    """Return what deviates from the two-field form; empty for a valid object.

    Names may be padded, and opcodes may be in another case.
    """
    if not isinstance(obj, dict):
        return f"the object stands inside a {'list' if isinstance(obj, list) else 'text'}"
    odd = [key for key in obj if key not in {"next_node", "args"}]
    if odd:
        return f"`{odd[0][:MAX_VALUE_CHARACTERS]}` is no field of an action; it has `next_node` and `args` only"
    for key, kind, name in (("next_node", str, "a text"), ("args", dict, "an object")):
        if key not in obj:
            return f"`{key}` is missing"
        if not isinstance(obj[key], kind):
            return f"`{key}` must be {name}"
    node, args = opcode_of(obj["next_node"], tools), obj["args"]
    if not node:
        return "`next_node` is empty"
    if node == FINAL_RESPONSE:
        answers = [args[key] for key in STREAMED_KEYS if key in args]
        return "" if all(isinstance(answer, str) for answer in answers) else "`args.answer` must be a text"
    return _plan_deviation(args) if node == PLAN else ""


def _plan_deviation(args: Mapping[str, Any]) -> str:
    steps = args.get("steps")
    if not isinstance(steps, list):
        return "`args.steps` must be a list"
    for number, step in enumerate(steps):
        if not isinstance(step, dict) or not isinstance(step.get("node"), str) or not step["node"].strip():
            return f"`args.steps[{number}]` must be an object with `node` and `args`"
        if not isinstance(step.get("args", {}), dict):
            return f"`args.steps[{number}].args` must be an object"
    join = args.get("join")
    return "" if join is None or isinstance(join, dict) else "`args.join` must be an object or null"


def five_field_deviation(obj: Mapping[str, Any], tools: AbstractSet[str]) -> str:
    """Return what deviates from the five-field form; empty for a valid object.

    All fields but `next_node` are optional.
    """
    inner = obj.get("action")
    if isinstance(inner, Mapping) and set(obj) <= {"thought", "action"}:
        obj = inner
    odd = [key for key in obj if key not in FIVE_FIELDS]
    if odd:
        name = odd[0][:MAX_VALUE_CHARACTERS]
        return f"`{name}` is no field of an action; it has `thought`, `next_node`, `args`, `plan` and `join` only"
    if "next_node" not in obj:
        return "`next_node` is missing"
    node, plan = obj["next_node"], obj.get("plan")
    if isinstance(node, str) and opcode_of(node, tools) in {FINAL_RESPONSE, PLAN}:
        return (
            "`next_node` must be the name of a tool, or null for an answer in `args` and for a list of steps in `plan`"
        )
    if plan is not None and not isinstance(plan, list):
        return "`plan` must be a list of steps or null"
    if node is None and plan is None and has_steps(obj) and not says_something(obj):
        return "the steps must stand in `plan`"
    return ""


def action_to_legacy(action: PlannerAction, thought: str | None) -> dict[str, Any]:
    """Return an action in five fields: `thought, next_node, args, plan, join`.

    A final answer is under `raw_answer`, and its node is null.
    """
    legacy: dict[str, Any] = {"thought": thought, "next_node": None, "args": None, "plan": None, "join": None}
    opcode = action.opcode
    if opcode == FINAL_RESPONSE:
        args = {"raw_answer" if key == "answer" else key: value for key, value in action.args.items()}
        return legacy | {"args": args}
    if opcode == PLAN:
        return legacy | {"plan": action.args.get("steps", []), "join": action.args.get("join")}
    return legacy | {"next_node": action.next_node, "args": action.args}
