"""What becomes of the blocks of a response: the suggestions and the payload that count, and warnings for all others.

Rule 1: of each kind of suggestions the first valid block counts; of the payloads the first one of the type that comes
first on the page.
Rule 2: a block is hidden whatever becomes of it, and each loss is a warning, by its code. A bad item of a list is
dropped, and the others stay. An empty list was there; None was not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from services.planner.replies.marked.openers import BLANKS
from services.runtime import exact_json
from services.shared.runs.pages.page_types import BUILT_IN_PAYLOADS, SUGGESTIONS, PayloadType, summary

MAX_DEPTH = 64
SUGGESTED_VALUES, SUGGESTED_ACTIONS = SUGGESTIONS
CLOSE_CHAT = "close_chat"
HANDLER = "client"


@dataclass(frozen=True, slots=True)
class Page:
    """Where a turn takes place. `payloads`: types that count there; `actions`: those of its client, and of all."""

    payloads: tuple[str, ...] = ()
    actions: frozenset[str] = frozenset()
    types: Sequence[PayloadType] = BUILT_IN_PAYLOADS
    """Those of the deployment: their markers are hidden, also of those that do not count there."""

    @property
    def by_marker(self) -> dict[str, PayloadType]:
        """The types that have a marker."""
        return {each.marker: each for each in self.types if each.marker}


@dataclass(frozen=True, slots=True)
class Response:
    """A response, read to its end."""

    message: str
    suggested_values: list[dict[str, str]] | None = None
    suggested_actions: list[dict[str, str]] | None = None
    custom_payload: dict[str, Any] | None = None
    """`{"type", "data"}`"""
    warnings: list[str] = field(default_factory=list)
    """Codes, sorted."""

    def final_args(self, payload_id: str, types: Sequence[PayloadType] = BUILT_IN_PAYLOADS) -> dict[str, Any]:
        """Return the arguments of the final answer that this is. `payload_id`: of its payload, if it has one."""
        payload = self.custom_payload
        extra = {
            "suggested_values": self.suggested_values,
            "client_actions": self.suggested_actions,
            "custom_payload": payload
            and {**payload, "id": payload_id, "summary": summary(payload["type"], payload["data"], types)},
        }
        return {
            "answer": self.message,
            "suggested_actions": [
                {"action_id": each["action"], "label": each["label"], "params": {"handler": each["handler"]}}
                for each in self.suggested_actions or ()
            ],
            "extra": {name: value for name, value in extra.items() if value is not None},
            "warnings": self.warnings,
        }


class Blocks:
    """The blocks of one response."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._actions = page.actions | {CLOSE_CHAT}
        self._suggestions: dict[str, list[dict[str, str]]] = {}
        self._by_marker = page.by_marker
        self._payloads: list[tuple[PayloadType, dict[str, Any]]] = []
        self._warnings: list[str] = []

    def warn(self, code: str) -> None:
        """Take a warning."""
        self._warnings.append(code)

    def add(self, name: str, text: str) -> None:
        """Take a block: its name and its JSON."""
        try:
            found = exact_json.loads_strictly(text.encode())
            is_json = not _is_deep(found)
        except (ValueError, RecursionError):
            found, is_json = None, False
        kind = self._by_marker.get(name)
        is_right_type = isinstance(found, list) if kind is None else isinstance(found, dict)
        if not is_json:
            self.warn("invalid_json")
        elif not is_right_type:
            self.warn("wrong_json_type")
        elif kind is None:
            self._add_suggestions(name, found)
        elif kind.name not in self._page.payloads:
            self.warn("payload_not_available_on_page")
        elif faults := kind.faults(found):
            self._warnings += faults
        else:
            self._payloads.append((kind, found))

    def response(self, message: str) -> Response:
        """Return the response, once there is no more text."""
        warnings = list(self._warnings)
        values, actions = self._suggestions.get(SUGGESTED_VALUES), self._suggestions.get(SUGGESTED_ACTIONS)
        payload = None
        if self._payloads:
            kind, data = min(self._payloads, key=lambda each: self._page.payloads.index(each[0].name))
            payload = {"type": kind.name, "data": data}
            warnings += ["extra_payload_dropped"] * (len(self._payloads) - 1)
            warnings += ["suggestions_with_proposal"] if self._suggestions else []
        return Response(message, values, actions, payload, sorted(warnings))

    def cancelled(self, message: str) -> Response:
        """Return the response of a turn that was cancelled: its text alone."""
        return Response(message, warnings=sorted([*self._warnings, "cancelled"]))

    def _add_suggestions(self, name: str, items: list[Any]) -> None:
        if name in self._suggestions:
            self.warn("duplicate_block")
            return
        kept = self._suggestions[name] = []
        for item in items:
            found = self._suggestion(name, item if isinstance(item, Mapping) else {})
            if isinstance(found, str):
                self.warn(found)
            else:
                kept.append(found)

    def _suggestion(self, name: str, item: Mapping[str, Any]) -> dict[str, str] | str:
        """Return a suggestion, or the code of what is wrong with it."""
        key = "value" if name == SUGGESTED_VALUES else "action"
        label, chosen = item.get("label"), item.get(key)
        if not _is_text(label) or not _is_text(chosen):
            return "invalid_suggestion_item"
        if key == "value":
            return {"label": label, "value": chosen}
        if chosen not in self._actions:
            return "unregistered_action"
        if item.get("handler") != HANDLER:
            return "invalid_action_handler"
        return {"label": label, "action": chosen, "handler": HANDLER}


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip(BLANKS))


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return False
        level = [child for each in containers for child in (each.values() if isinstance(each, dict) else each)]
    return True
