"""Checks an object against the two-field form that the prompt asks for (`action_format: unified`)."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from contracts.runs.actions import FINAL_RESPONSE, PLAN
from services.planner.replies.actions.names import STREAMED_KEYS, opcode_of


def deviation(obj: Any, tools: AbstractSet[str]) -> str:
    """Return what deviates from the two-field form; empty for a valid object.

    Names may be padded, and opcodes may be in another case.
    """
    if not isinstance(obj, dict):
        return f"the object stands inside a {'list' if isinstance(obj, list) else 'text'}"
    odd = [key for key in obj if key not in {"next_node", "args"}]
    if odd:
        return f"`{odd[0][:40]}` is no field of an action; it has `next_node` and `args` only"
    for key, kind, name in (("next_node", str, "a text"), ("args", dict, "an object")):
        if key not in obj:
            return f"`{key}` is missing"
        if not isinstance(obj[key], kind):
            return f"`{key}` must be {name}"
    node, args = opcode_of(obj["next_node"], tools), obj["args"]
    if not node:
        return "`next_node` is empty"
    return {FINAL_RESPONSE: _final, PLAN: _plan}.get(node, _any)(args)


def _any(_: Mapping[str, Any]) -> str:
    return ""


def _final(args: Mapping[str, Any]) -> str:
    answers = [args[key] for key in STREAMED_KEYS if key in args]
    return "" if all(isinstance(answer, str) for answer in answers) else "`args.answer` must be a text"


def _plan(args: Mapping[str, Any]) -> str:
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
