"""Reads calls in the notations of other frameworks, which models were trained on."""

from collections.abc import Mapping
from typing import Any

from contracts.runs.actions import FINAL_RESPONSE
from services.planner.replies.actions.values import as_object

_FORMS = {
    "name": ("arguments", "args", "parameters"),
    "tool": ("args", "arguments", "parameters", "tool_input"),
    "action": ("action_input", "args", "arguments"),
}
_FINAL_ANSWER = "final answer"
"""The final action of a widespread prompt. A tool cannot have this name, because of the blank."""


def calls_of(action: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls that an object holds, as `{next_node, args}` with `args` as written.

    Empty: the object has none of these forms.
    """
    envelope = action.get("tool_calls")
    if isinstance(envelope, list):
        calls = [call for item in envelope if (call := _function(item))]
        if calls:
            return calls
    for key in ("function_call", "function"):
        call = _function(action.get(key))
        if call:
            return [call]
    for name, arguments in _FORMS.items():
        call = _call(action, name, arguments)
        if call:
            return [call]
    return []


def _function(item: Any) -> dict[str, Any] | None:
    """Read one entry of an envelope: a call, or a `function` that holds it. Arguments may be missing here."""
    if not isinstance(item, dict):
        return None
    inner = item.get("function", item)
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str) or not inner["name"].strip():
        return None
    return _call({"arguments": None, **inner}, "name", _FORMS["name"])


def _call(action: Mapping[str, Any], key: str, arguments: tuple[str, ...]) -> dict[str, Any] | None:
    name = action.get(key)
    given = [action[argument] for argument in arguments if argument in action]
    if not isinstance(name, str) or not name.strip() or not given:
        return None
    node = FINAL_RESPONSE if name.strip().lower() == _FINAL_ANSWER else name
    return {"next_node": node, "args": next((value for value in given if value is not None), None)}


def nested_action(action: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the action under the key `action`, an object or its text; None where there is none."""
    return as_object(action.get("action"))
