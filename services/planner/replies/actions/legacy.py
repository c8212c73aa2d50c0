"""Converts an action back into the five-field form."""

from typing import Any

from contracts.runs.actions import FINAL_RESPONSE, PLAN, PlannerAction
from services.planner.replies.actions.names import opcode_of


def action_to_legacy(action: PlannerAction, thought: str | None) -> dict[str, Any]:
    """Return an action in five fields: `thought, next_node, args, plan, join`.

    A final answer is under `raw_answer`, and its node is null.
    """
    legacy: dict[str, Any] = {"thought": thought, "next_node": None, "args": None, "plan": None, "join": None}
    opcode = opcode_of(action.next_node)
    if opcode == FINAL_RESPONSE:
        args = {"raw_answer" if key == "answer" else key: value for key, value in action.args.items()}
        return legacy | {"args": args}
    if opcode == PLAN:
        return legacy | {"plan": action.args.get("steps", []), "join": action.args.get("join")}
    return legacy | {"next_node": action.next_node, "args": action.args}
