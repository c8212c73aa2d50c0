"""Reads values of an action that models often write in another form: encoded as text, wrapped, or of another type.

`plan_args` makes arguments of `plan` (valid `steps`, a `join` if any), `task_args` those of `task` (one mode's fields).
"""

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from services.planner.replies.actions.names import STREAMED_KEYS
from services.planner.replies.actions.scan import Found, Scan
from services.planner.replies.strict_json import ANSWER_KEYS, MAX_DEPTH, loads_or

MAX_ENCODINGS = 2
_NODE_KEYS = ("node", "tool", "next_node")
_ARGS_KEYS = ("args", "arguments", "tool_args")
_MODES = ("subagent", "job")
_OTHER_MODE = {"subagent": ("tool", "tool_args"), "job": ("query",)}
_STRATEGIES = {strategy.replace("_", ""): strategy for strategy in ("APPEND", "REPLACE", "HUMAN_GATED")}
"""Merge strategies by their bare names."""
_REPORTS = frozenset({"all", "any", "none"})


def as_object(value: Any) -> dict[str, Any] | None:
    """Return an object: the value itself, or the one that its text encodes; None where there is none."""
    for _ in range(MAX_ENCODINGS):
        value = _decoded(value)
    return value if isinstance(value, dict) else None


def object_in(value: Any) -> dict[str, Any] | None:
    """The same as `as_object`, for a text that may hold the object in a code fence or in prose; None for several."""
    found = as_object(value)
    if found is not None or not isinstance(value, str) or "{" not in value:
        return found
    items = list(islice(Scan(value).items(), 2))
    only = items[0] if len(items) == 1 else None
    return only.value if isinstance(only, Found) and value[only.start] == "{" else None


def _decoded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return loads_or(value) if value.lstrip().startswith(("{", "[", '"')) else None


def pick_answer(fields: Mapping[str, Any]) -> Any:
    """Return the answer among several keys; None where there is none. A null does not count.

    The first of `answer` and `raw_answer` in the object wins, then `text`, `response`, `content`.
    """
    return next((fields[key] for key in answer_keys(fields)), None)


def answer_keys(fields: Mapping[str, Any]) -> list[str]:
    """Return the keys that hold an answer. The first one counts."""
    keys = [key for key in fields if key in STREAMED_KEYS] + list(ANSWER_KEYS[len(STREAMED_KEYS) :])
    return [key for key in keys if fields.get(key) is not None]


def answer_text(value: Any, *, known_only: bool = False) -> str | None:
    """Return an answer as text: a text, a number, a list of these (one per line), or an object with an answer key.

    Any other value becomes its JSON text, or None with `known_only`. Null and an empty list or object give None.
    """
    for _ in range(MAX_DEPTH):
        inner = pick_answer(value) if isinstance(value, dict) else None
        if inner is None:
            break
        value = inner
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _lines(value, known_only=known_only)
    if isinstance(value, int | float) or (value and not known_only):
        return json.dumps(value, ensure_ascii=False)
    return None


def _lines(items: list[Any], *, known_only: bool) -> str | None:
    """Return a list as lines. Its leading texts may be streamed already, so they stay at the beginning."""
    lines: list[str | None] = []
    for item in items:
        value = pick_answer(item) if isinstance(item, dict) else item
        is_number = isinstance(value, int | float)
        lines.append(value if isinstance(value, str) else json.dumps(value) if is_number else None)
    texts = [line for line in lines if line is not None]
    if texts and len(texts) == len(lines):
        return "\n".join(texts)
    if known_only or not items:
        return None
    if isinstance(items[0], str):
        return "\n".join(
            line if line is not None else json.dumps(item, ensure_ascii=False)
            for line, item in zip(lines, items, strict=True)
        )
    return json.dumps(items, ensure_ascii=False)


def has_steps(action: Mapping[str, Any]) -> bool:
    """Whether an object holds a list of steps: as `steps`, or in `args` as `steps` or `plan`."""
    args = as_object(action.get("args")) or {}
    return any(isinstance(steps, list) for steps in (action.get("steps"), args.get("steps"), args.get("plan")))


def plan_args(action: Mapping[str, Any], *, args_first: bool, warnings: list[str]) -> dict[str, Any]:
    """Return the arguments of a plan, wherever the object holds them.

    `args_first`: the node is plan, so `args` belong to the plan. Otherwise `args` may belong to a tool, and `plan` or
    `steps` at the top level come first.
    """
    args = _decoded(action.get("args"))
    places: list[Any] = [args, action] if args_first else [action, args]
    steps, container = next((found for place in places if (found := _steps_in(place)) is not None), (None, {}))
    result: dict[str, Any] = {"steps": _clean(steps, warnings)}
    joins = (place.get("join") for place in (container, action, args) if isinstance(place, dict))
    join = _join(next((join for join in joins if join is not None), None), warnings)
    return result | ({"join": join} if join else {})


def _steps_in(place: Any) -> tuple[Any, Mapping[str, Any]] | None:
    """Return the steps in a value, and the object that may hold their join; None where it has no steps."""
    if isinstance(place, list):
        return place, {}
    if not isinstance(place, dict):
        return None
    plan = place.get("plan")
    if isinstance(plan, dict) and "steps" in plan:
        return plan["steps"], plan
    for key in ("steps", "plan"):
        if place.get(key) is not None:
            return place[key], place
    return None


def _clean(steps: Any, warnings: list[str]) -> list[dict[str, Any]]:
    if not isinstance(steps, list):
        warnings.append(
            "the plan is empty: `steps` is missing" if steps is None else "the plan is empty: `steps` is no list"
        )
        return []
    clean = []
    for number, step in enumerate(steps, 1):
        if not isinstance(step, dict):
            warnings.append(f"step {number} of the plan was dropped: it is no object")
        elif (node := _node(step)) is None:
            warnings.append(f"step {number} of the plan was dropped: it has no `node`")
        else:
            clean.append({"node": node, "args": object_in(_args(step)) or {}})
    return clean


def _node(step: Mapping[str, Any]) -> str | None:
    """Return the node of a step or join, without padding."""
    name = next((step[key] for key in _NODE_KEYS if step.get(key) is not None), None)
    return name.strip() or None if isinstance(name, str) else None


def _args(step: Mapping[str, Any]) -> Any:
    return next((step[key] for key in _ARGS_KEYS if step.get(key) is not None), None)


def _join(join: Any, warnings: list[str]) -> dict[str, Any] | None:
    """Return a join that names a node, else None. Invalid `args` and `inject` stay, for the model to learn of."""
    if join is None or join == {}:
        return None
    if not isinstance(join, dict):
        warnings.append("the join was dropped: it is no object")
        return None
    node = _node(join)
    if node is None:
        return None
    args, inject = _args(join), join.get("inject")
    parsed = object_in(args)
    parsed_or_given = args if parsed is None else parsed
    return (
        {"node": node}
        | ({"args": parsed_or_given} if parsed_or_given else {})
        | ({"inject": inject} if inject is not None else {})
    )


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
            # Its canonical spelling; case, hyphens and blanks do not matter.
            bare_name = re.sub(r"[\s_-]+", "", fields[key]).upper()
            fields[key] = _STRATEGIES.get(bare_name, fields[key])
    if isinstance(report := fields.get("group_report"), str) and report.strip().lower() in _REPORTS:
        fields["group_report"] = report.strip().lower()
    if "tool_args" in fields:
        fields["tool_args"] = object_in(fields["tool_args"]) or {}
    return fields if mode is None else {"mode": mode, **fields}


def _mode(fields: dict[str, Any], alias_mode: str | None) -> Any:
    stated = fields.get("mode", "")
    if isinstance(stated, str):
        stated = stated.strip()
        stated = stated.lower() if stated.lower() in _MODES else stated
    if stated != "":
        return stated
    return alias_mode or ("subagent" if fields.get("query") else "job" if fields.get("tool") else None)
