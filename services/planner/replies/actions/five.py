"""Checks an object against the five-field form that the prompt asks for (`action_format: legacy`).

The text around the object does not matter.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from contracts.runs.actions import FINAL_RESPONSE, PLAN
from services.planner.replies.actions.final import says_something
from services.planner.replies.actions.names import opcode_of
from services.planner.replies.actions.plan import has_steps

FIELDS = ("thought", "next_node", "args", "plan", "join")
MAX_VALUE_CHARACTERS = 40


def five_field_deviation(obj: Mapping[str, Any], tools: AbstractSet[str]) -> str:
    """Return what deviates from the five-field form; empty for a valid object.

    All fields but `next_node` are optional.
    """
    inner = obj.get("action")
    if isinstance(inner, Mapping) and set(obj) <= {"thought", "action"}:
        obj = inner
    odd = [key for key in obj if key not in FIELDS]
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
