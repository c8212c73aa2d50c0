"""Reads one object: its shape, and its action."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Any, NamedTuple

from contracts.runs.actions import FINAL_RESPONSE, PLAN, TASK, PlannerAction
from services.planner.replies.actions.bounds import bounded
from services.planner.replies.actions.final import final_args, has_answer, says_something
from services.planner.replies.actions.foreign import calls_of, nested_action
from services.planner.replies.actions.names import ALIAS_MODES, is_null_word, opcode_of, spelled, streams_before_plan
from services.planner.replies.actions.plan import has_steps, plan_args
from services.planner.replies.actions.task import task_args
from services.planner.replies.actions.values import as_object
from services.planner.replies.strict_json import ANSWER_KEYS

_TELLING_KEYS = frozenset(
    {
        "next_node",
        "args",
        "plan",
        "steps",
        "action",
        "name",
        "tool",
        "tool_calls",
        "function_call",
        "function",
        *ANSWER_KEYS,
    }
)
MAX_NESTING = 3
MAX_KEYS_LISTED = 8
MAX_KEY_CHARACTERS = 40


class Shape(IntEnum):
    """How close an object is to an action. Of several objects, the one with the highest shape counts."""

    OTHER = 0
    ANSWER = 1
    CALL = 2
    NODE = 3


class Reading(NamedTuple):
    """The action of an object, or a complaint. `further`: calls that the object holds beside the action."""

    action: PlannerAction | None = None
    thought: str | None = None
    complaint: str = ""
    warnings: tuple[str, ...] = ()
    further: tuple[dict[str, Any], ...] = ()


def shape_of(obj: Mapping[str, Any], level: int = 0) -> Shape:
    """Return the shape of an object. A nested action counts as a call."""
    if obj.keys().isdisjoint(_TELLING_KEYS):
        return Shape.OTHER
    if "next_node" in obj:
        return Shape.NODE
    if calls_of(obj) or obj.get("plan") is not None or has_steps(obj):
        return Shape.CALL
    inner = nested_action(obj) if level < MAX_NESTING else None
    if inner is not None and shape_of(inner, level + 1) is not Shape.OTHER:
        return Shape.CALL
    return Shape.ANSWER if has_answer(obj) else Shape.OTHER


def read_object(obj: Mapping[str, Any], tools: AbstractSet[str], level: int = 0) -> Reading:
    """Return the action of an object, or a complaint that says what it lacks."""
    thought = _thought(obj)
    if "next_node" in obj:
        return _read_node(obj, tools, thought)
    calls = calls_of(obj)
    if calls:
        first = _read_node(calls[0], tools, thought)
        return Reading(first.action, thought, first.complaint, first.warnings, tuple(calls[1:]))
    if obj.get("plan") is not None or has_steps(obj):
        return _plan(obj, thought, args_first=False)
    inner = nested_action(obj) if level < MAX_NESTING else None
    if inner is not None and shape_of(inner, level + 1) is not Shape.OTHER:
        nested = read_object(inner, tools, level + 1)
        return Reading(nested.action, thought or nested.thought, nested.complaint, nested.warnings, nested.further)
    if has_answer(obj):
        return _final(obj, thought)
    return Reading(None, thought, f"the object has no `next_node` ({_keys(obj)})")


def _read_node(obj: Mapping[str, Any], tools: AbstractSet[str], thought: str | None) -> Reading:
    node = obj["next_node"]
    if node is not None and not isinstance(node, str):
        return Reading(None, thought, f"`next_node` is {_type(node)}; a text is expected")
    if node is not None and not node.strip():
        return Reading(None, thought, "`next_node` is empty")
    opcode = None if node is None else opcode_of(node, tools)
    final = node is None or opcode == FINAL_RESPONSE or (is_null_word(node, tools) and says_something(obj))
    if obj.get("plan") is not None and not (final and streams_before_plan(obj)):
        return _plan(obj, thought, args_first=opcode == PLAN)
    if node is None and has_steps(obj) and not says_something(obj):
        return _plan(obj, thought, args_first=True)
    if final or node is None or opcode is None:
        return _final(obj, thought)
    if opcode == PLAN:
        return _plan(obj, thought, args_first=True)
    warnings: list[str] = []
    args = _object_args(obj, warnings)
    if opcode == TASK:
        args = task_args(args, ALIAS_MODES.get(spelled(node, tools)), warnings)
    return Reading(PlannerAction(next_node=opcode, args=args), thought, warnings=tuple(warnings))


def _object_args(obj: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    given = obj.get("args")
    args = as_object(given)
    if args is None and given is not None:
        warnings.append(f"`args` was {_type(given)} and holds no object; it counts as {{}}")
    return args or {}


def _final(obj: Mapping[str, Any], thought: str | None) -> Reading:
    warnings = ["a plan behind the answer was ignored"] if obj.get("plan") is not None else []
    args = bounded(final_args(obj, warnings), warnings)
    return Reading(PlannerAction(next_node=FINAL_RESPONSE, args=args), thought, warnings=tuple(warnings))


def _plan(obj: Mapping[str, Any], thought: str | None, *, args_first: bool) -> Reading:
    warnings: list[str] = []
    args = plan_args(obj, args_first=args_first, warnings=warnings)
    return Reading(PlannerAction(next_node=PLAN, args=args), thought, warnings=tuple(warnings))


def _thought(obj: Mapping[str, Any]) -> str | None:
    thought = obj.get("thought")
    return thought.strip() or None if isinstance(thought, str) else None


def _keys(obj: Mapping[str, Any]) -> str:
    if not obj:
        return "it is empty"
    keys = ", ".join(f"`{key[:MAX_KEY_CHARACTERS]}`" for key in list(obj)[:MAX_KEYS_LISTED])
    return f"its keys are {keys}" + (", …" if len(obj) > MAX_KEYS_LISTED else "")


def _type(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
