"""Reads one object: its shape, and its action, also in the notations of other frameworks.

The fields beside the text of an answer are limited here, because a large reply is parsed in a thread: the payload is
built later, in the event loop, where other runs would wait.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from itertools import chain
from typing import Any, NamedTuple

from contracts.runs.decisions import FINAL_RESPONSE, PLAN, RESERVED, TASK, PlannerAction
from services.planner.replies.actions.arguments import as_object, has_steps, object_in, plan_args, task_args
from services.planner.replies.actions.forms import final_args, has_answer, says_something
from services.planner.replies.actions.names import (
    ALIAS_MODES,
    MAX_KEY_CHARACTERS,
    is_null_word,
    opcode_of,
    spelled,
    streams_before_plan,
)
from services.planner.replies.strict_json import ANSWER_KEYS

_TELLING_KEYS = frozenset(
    {
        *("next_node", "args", "plan", "steps", "action", "name", "tool", "tool_calls", "function_call", "function"),
        *ANSWER_KEYS,
    }
)
MAX_NESTING = 3
MAX_KEYS_LISTED = 8
MAX_ITEMS = 1000
"""Items that are kept of a list of sources, suggested actions or warnings: the first ones."""
MAX_VALUES = 20_000
"""Limit of the values of all fields together, nested ones included. A field that exceeds it is dropped."""
_LISTS = ("sources", "suggested_actions", "warnings")
_FOREIGN_FORMS = {
    "name": ("arguments", "args", "parameters"),
    "tool": ("args", "arguments", "parameters", "tool_input"),
    "tool_name": ("arguments", "parameters", "args"),
    "action": ("action_input", "args", "arguments"),
}
_FINAL_ANSWER = "final answer"
"""The final action of a widespread prompt. A tool cannot have this name, because of the blank."""


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


def calls_of(action: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls that an object holds, as `{next_node, args}` with `args` as written.

    Empty: the object has none of these forms.
    """
    envelope = action.get("tool_calls")
    if isinstance(envelope, list):
        calls = [call for item in envelope if (call := _function_in(item))]
        if calls:
            return calls
    found = chain(
        (_function_in(action.get(key)) for key in ("function_call", "function")),
        (_call_in(action, name, arguments) for name, arguments in _FOREIGN_FORMS.items()),
    )
    return next(([call] for call in found if call), [])


def _function_in(item: Any) -> dict[str, Any] | None:
    """Read one entry of an envelope: a call, or a `function` that holds it. Arguments may be missing here."""
    if not isinstance(item, dict):
        return None
    inner = item.get("function", item)
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str) or not inner["name"].strip():
        return None
    return _call_in({"arguments": None, **inner}, "name", _FOREIGN_FORMS["name"])


def _call_in(action: Mapping[str, Any], key: str, arguments: tuple[str, ...]) -> dict[str, Any] | None:
    name = action.get(key)
    given = [action[argument] for argument in arguments if argument in action]
    if not isinstance(name, str) or not name.strip() or not given:
        return None
    node = FINAL_RESPONSE if name.strip().lower() == _FINAL_ANSWER else name
    return {"next_node": node, "args": next((value for value in given if value is not None), None)}


def shape_of(obj: Mapping[str, Any], level: int = 0) -> Shape:
    """Return the shape of an object. A nested action counts as a call."""
    if obj.keys().isdisjoint(_TELLING_KEYS):
        return Shape.OTHER
    if "next_node" in obj:
        return Shape.NODE
    if calls_of(obj) or obj.get("plan") is not None or has_steps(obj):
        return Shape.CALL
    inner = as_object(obj.get("action")) if level < MAX_NESTING else None
    if inner is not None and shape_of(inner, level + 1) is not Shape.OTHER:
        return Shape.CALL
    return Shape.ANSWER if has_answer(obj) else Shape.OTHER


def read_object(obj: Mapping[str, Any], tools: AbstractSet[str], level: int = 0) -> Reading:
    """Return the action of an object, or a complaint that says what it lacks."""
    given = obj.get("thought")
    thought = given.strip() or None if isinstance(given, str) else None
    if "next_node" in obj:
        return _read_node(obj, tools, thought)
    calls = calls_of(obj)
    if calls:
        first = _read_node(calls[0], tools, thought)
        return Reading(first.action, thought, first.complaint, first.warnings, tuple(calls[1:]))
    if obj.get("plan") is not None or has_steps(obj):
        return _plan(obj, thought, args_first=False)
    inner = as_object(obj.get("action")) if level < MAX_NESTING else None
    if inner is not None and shape_of(inner, level + 1) is not Shape.OTHER:
        nested = read_object(inner, tools, level + 1)
        return Reading(nested.action, thought or nested.thought, nested.complaint, nested.warnings, nested.further)
    if has_answer(obj):
        return _final(obj, thought)
    keys = ", ".join(f"`{key[:MAX_KEY_CHARACTERS]}`" for key in list(obj)[:MAX_KEYS_LISTED])
    keys += ", …" if len(obj) > MAX_KEYS_LISTED else ""
    has = f"its keys are {keys}" if obj else "it is empty"
    return Reading(None, thought, f"the object has no `next_node` ({has})")


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
    given = obj.get("args")
    args = object_in(given)
    if args is None and given is not None:
        warnings.append(f"`args` was {_type(given)} and holds no object; it counts as {{}}")
    args = args or {}
    if (warning := renamed(node, opcode)) is not None:
        warnings.append(warning)
    if opcode == TASK:
        args = task_args(args, ALIAS_MODES.get(spelled(node, tools)), warnings)
    return Reading(PlannerAction(next_node=opcode, args=args), thought, warnings=tuple(warnings))


def renamed(written: str, called: str) -> str | None:
    """Return the warning about a decorated name; None where the name is plain."""
    if written.strip() == called or written.strip().lower() in RESERVED:
        return None
    return f"the model wrote the name {written[:MAX_KEY_CHARACTERS]!r}; `{called}` was called"


def _final(obj: Mapping[str, Any], thought: str | None) -> Reading:
    warnings = ["a plan behind the answer was ignored"] if obj.get("plan") is not None else []
    args = bounded(final_args(obj, warnings), warnings)
    return Reading(PlannerAction(next_node=FINAL_RESPONSE, args=args), thought, warnings=tuple(warnings))


def _plan(obj: Mapping[str, Any], thought: str | None, *, args_first: bool) -> Reading:
    warnings: list[str] = []
    args = plan_args(obj, args_first=args_first, warnings=warnings)
    return Reading(PlannerAction(next_node=PLAN, args=args), thought, warnings=tuple(warnings))


def _type(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")


def bounded(args: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Return the arguments of a final response within the limits. Adds a warning for what is left out."""
    kept: dict[str, Any] = {}
    dropped: list[str] = []
    left = MAX_VALUES
    for key, given in args.items():
        value = given
        if key in _LISTS and isinstance(value, list) and len(value) > MAX_ITEMS:
            warnings.append(f"`{key}` was cut: it had {len(value):,} items, and the first {MAX_ITEMS:,} are kept")
            value = value[:MAX_ITEMS]
        count = _count(value, left)
        if count > left:
            dropped.append(key)
            continue
        left -= count
        kept[key] = value
    if dropped:
        more = f" and {len(dropped) - 1:,} more fields were" if len(dropped) > 1 else " was"
        limit = f"an answer may have {MAX_VALUES:,} values beside its text"
        warnings.append(f"`{dropped[0][:MAX_KEY_CHARACTERS]}`{more} dropped: {limit}")
    return kept


def _count(value: Any, most: int) -> int:
    """Return the number of values in a value, itself included. Counting stops soon after `most`."""
    count, waiting = 1, [value]
    while waiting and count <= most:
        box = waiting.pop()
        inner = box.values() if isinstance(box, dict) else box if isinstance(box, list) else ()
        count += len(inner)
        waiting += [item for item in inner if isinstance(item, dict | list)]
    return count
