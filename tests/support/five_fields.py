"""Writes actions in the five fields of the format `legacy`, as a model does."""

from typing import Any

from contracts.runs.decisions import FINAL_RESPONSE, PLAN, PlannerAction


def in_five_fields(action: PlannerAction, thought: str | None) -> dict[str, Any]:
    """Return an action in five fields: `thought, next_node, args, plan, join`.

    A final answer is under `raw_answer`, and its node is null.
    """
    legacy: dict[str, Any] = {"thought": thought, "next_node": None, "args": None, "plan": None, "join": None}
    if action.opcode == FINAL_RESPONSE:
        return legacy | {"args": {"raw_answer" if key == "answer" else key: each for key, each in action.args.items()}}
    if action.opcode == PLAN:
        return legacy | {"plan": action.args.get("steps", []), "join": action.args.get("join")}
    return legacy | {"next_node": action.next_node, "args": action.args}
