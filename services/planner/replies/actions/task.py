"""Builds the arguments of `task`: one mode, and only the fields of that mode."""

import re
from typing import Any

from services.planner.replies.actions.values import as_object

_MODES = ("subagent", "job")
_OTHER_MODE = {"subagent": ("tool", "tool_args"), "job": ("query",)}
_STRATEGIES = frozenset({"APPEND", "REPLACE", "HUMAN_GATED"})
_REPORTS = frozenset({"all", "any", "none"})


def task_args(args: dict[str, Any], alias_mode: str | None, warnings: list[str]) -> dict[str, Any]:
    """Return the arguments of a background task, without null fields.

    The mode is the stated one, else that of the opcode's alias, else the one that `query` or `tool` implies. Without
    any of these it stays out, and the check of the arguments tells the model what is missing. Unknown values are kept
    for the same reason.
    """
    fields = {key: value for key, value in args.items() if value is not None}
    mode = _mode(fields, alias_mode)
    fields.pop("mode", None)
    for key in _OTHER_MODE.get(mode, ()) if isinstance(mode, str) else ():
        if key in fields:
            warnings.append(f"`{key}` was dropped: it is no field of a {mode}")
            del fields[key]
    for key in ("merge_strategy", "group_merge_strategy"):
        if isinstance(fields.get(key), str):
            fields[key] = _strategy(fields[key])
    if isinstance(report := fields.get("group_report"), str) and report.strip().lower() in _REPORTS:
        fields["group_report"] = report.strip().lower()
    if "tool_args" in fields:
        fields["tool_args"] = as_object(fields["tool_args"]) or {}
    return fields if mode is None else {"mode": mode, **fields}


def _mode(fields: dict[str, Any], alias_mode: str | None) -> Any:
    stated = fields.get("mode")
    if isinstance(stated, str):
        stated = stated.strip()
        stated = stated.lower() if stated.lower() in _MODES else stated
    if stated not in {None, ""} if isinstance(stated, str | None) else True:
        return stated
    if alias_mode:
        return alias_mode
    return "subagent" if fields.get("query") else "job" if fields.get("tool") else None


def _strategy(text: str) -> str:
    """Return a merge strategy in its canonical spelling; case, hyphens and blanks do not matter."""
    name = re.sub(r"[\s_-]+", "_", text.strip()).upper()
    by_bare_name = {strategy.replace("_", ""): strategy for strategy in _STRATEGIES}
    return by_bare_name.get(name.replace("_", ""), text)
