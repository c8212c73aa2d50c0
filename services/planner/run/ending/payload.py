"""The FinalPayload of a run, however it ended (docs/planner.md#how-every-run-ends).

Rule 1: no output of a model prevents a payload: each field is checked alone, and an invalid one is dropped with a
warning.
Rule 2: artifacts come from tools, never from the model. Sources come from tools first, then from the model.
Rule 3: a fallback extracts text. It never copies data.
Rule 4: warnings name fields and expectations, never values.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contracts.runs.payload import NO_ANSWER, FinalPayload, Reason, Source, SuggestedAction
from contracts.wire.base import ARTIFACT_WARNING_BYTES, Message
from services.shared.redaction.json_values import is_placeholder, plain
from services.shared.redaction.separation import source_of, unique_sources
from services.shared.redaction.stored_values import as_reference

ROUTES: dict[Reason, str] = {"budget_exhausted": "partial", "error": "error"}
"""The route of a stopped or failed run. Every other run has the route that the model names."""

_UNSHOWN: frozenset[Reason] = frozenset({"cancelled", "error"})
"""Ends whose text was not streamed. Their answer is never raw tool data."""

MODEL_CONFIDENCE = "model_confidence"
"""Key in `extra` of the model's own confidence, where a reflection score replaced it."""

_ANSWER = ("answer", "raw_answer")
_OTHER_ANSWERS = frozenset({"text", "response", "content"})
MAX_COMPLAINTS = 50
MAX_KEY_CHARACTERS = 40
_TWO_LETTERS = re.compile(r"[A-Za-z]{2}", re.ASCII)
_NO_REMARKS = frozenset({"thought", "reasoning", "next_node", "plan", "join"})
"""Keys of an action that may be among its arguments. Their content is not addressed to the user."""


def assemble(
    args: Any,
    *,
    last_observation: Any = None,
    artifacts: Mapping[str, Mapping[str, Any]] | None = None,
    artifact_types: Mapping[str, Mapping[str, str]] | None = None,
    sources: Sequence[Source] = (),
    reason: Reason = "answer_complete",
    warnings: Sequence[str] = (),
    reflection_score: float | None = None,
) -> FinalPayload:
    """Build the payload of a run from the arguments of its `final_response` (empty for a forced end).

    Never raises, whatever they hold.

    Args:
        args: as the model gave them: an object, or any other JSON, which then is the answer.
        last_observation: the redacted result of the last call that succeeded; read only when the arguments hold no
            answer.
        artifacts: tool -> dotted path -> JSON value or reference, of the whole run.
        artifact_types: tool -> dotted path -> type, where one is known.
        sources: collected from tools, in the order of their calls.
        reason: why the run ended; it decides the route of a stopped or failed run.
        warnings: the runtime's own, such as the budget that ran out; they stand before the model's.
        reflection_score: 0..1; replaces the model's confidence.
    """
    given = plain(args) if isinstance(args, Mapping) else {"answer": plain(args)}
    answer, used = _answer(given)
    fields = _Fields(given)
    confidence = fields.take(
        "confidence",
        lambda value: float(value) if type(value) in {int, float} and 0 <= value <= 1 else None,
        "a number from 0 to 1",
    )
    extra = dict(fields.take("extra", _typed(dict), "an object") or {})
    own_sources = fields.take_items(
        "sources", lambda item: source_of(item) if isinstance(item, dict) else None, "an object with a title"
    )
    route = fields.take("route", _name, "a string")
    payload_fields = {
        "suggested_actions": fields.take_items(
            "suggested_actions", _suggested_action, "an object with an action_id and a label"
        ),
        "requires_followup": fields.take("requires_followup", _typed(bool), "true or false") or False,
        "language": fields.take(
            "language",
            lambda value: (
                value.strip().lower() if isinstance(value, str) and _TWO_LETTERS.fullmatch(value.strip()) else None
            ),
            "a two-letter code",
        ),
    }
    # Of all keys that hold an answer only the first one is used, those of `_ANSWER` first.
    fields.drop("artifacts", "none, they come from tools")
    for key in sorted((key for key in given if key in used and given[key]), key=lambda key: key not in _ANSWER)[1:]:
        fields.drop(key, "one answer")
    own_warnings = fields.take_items("warnings", _name, "a string", single=True)
    extra |= {key: value for key, value in given.items() if key not in fields.known and key not in used}
    if reflection_score is not None and 0 <= reflection_score <= 1:
        extra |= {} if confidence is None else {MODEL_CONFIDENCE: confidence}
        confidence = float(reflection_score)
    return FinalPayload(
        raw_answer=answer or text_in(last_observation, data=reason not in _UNSHOWN) or NO_ANSWER,
        artifacts={tool: dict(found) for tool, found in (artifacts or {}).items() if found},
        artifact_types={tool: dict(found) for tool, found in (artifact_types or {}).items()},
        confidence=confidence,
        sources=unique_sources([*sources, *own_sources]),
        route=ROUTES.get(reason, route),
        warnings=list(dict.fromkeys([*warnings, *_heavy(artifacts or {}), *own_warnings, *fields.named_complaints()])),
        extra=extra,
        **payload_fields,
    )


def _heavy(artifacts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a warning for each artifact above 1 MB; only references are that large."""
    refs = {
        f"{path} of {tool}": as_reference(value) for tool, found in artifacts.items() for path, value in found.items()
    }
    return [
        f"artifact {name} has {ref.size:,} bytes"
        for name, ref in refs.items()
        if ref and ref.size > ARTIFACT_WARNING_BYTES
    ]


def _answer(args: Mapping[str, Any]) -> tuple[str | None, frozenset[str]]:
    """Return the answer in the arguments, and the keys that held it, which `extra` then leaves out."""
    own = [key for key in args if key in _ANSWER]
    spent = frozenset(own)
    for key in own:
        if text := rendered(args[key]) or (text_in(args[key]) if isinstance(args[key], Mapping | list) else None):
            return text, spent | _OTHER_ANSWERS
    others = {key: value for key, value in args.items() if key not in _Fields.known | _NO_REMARKS | spent}
    if text := known_text(others) or remark_in(others):
        spent |= _OTHER_ANSWERS | {
            key for key, value in others.items() if rendered(value) == text and not isinstance(value, Mapping)
        }
    return text, spent


class _Fields:
    """Reads the optional fields from the arguments, one by one."""

    known = frozenset(FinalPayload.model_fields) - {"raw_answer"}

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self.complaints: list[str] = []

    def take(self, field: str, read: Callable[[Any], Any], expected: str) -> Any:
        """Return a field's value, or None when it is missing, null or invalid."""
        value = self._given.get(field)
        return None if value is None or value == "" else self._read(field, value, read, expected)

    def take_items(self, field: str, read: Callable[[Any], Any], expected: str, *, single: bool = False) -> list[Any]:
        """Return the valid items of a list. `single`: one item without a list around it counts as a list of one."""
        value = self._given.get(field)
        if single and isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            if value is not None:
                self._complain(field, "a list")
            return []
        found = (self._read(f"{field}[{index}]", item, read, expected) for index, item in enumerate(value))
        return [item for item in found if item is not None]

    def drop(self, field: str, expected: str) -> None:
        """Report a given field that the payload does not take."""
        if self._given.get(field):
            self._complain(field, expected)

    def named_complaints(self) -> list[str]:
        """Return a warning for each dropped field, up to a limit."""
        more = len(self.complaints) - MAX_COMPLAINTS
        return [
            *self.complaints[:MAX_COMPLAINTS],
            *([f"{more} more parts of the answer were dropped"] if more > 0 else []),
        ]

    def _read(self, field: str, value: Any, read: Callable[[Any], Any], expected: str) -> Any:
        found = read(value)
        if found is None:
            self._complain(field, expected)
        elif isinstance(found, Message):
            for key in type(found).model_fields:
                if value.get(key) and not getattr(found, key):
                    self._complain(f"{field}.{key}", "another type")
            for key in value.keys() - type(found).model_fields.keys():
                self._complain(f"{field}.{key[:MAX_KEY_CHARACTERS]}", "no such field")
        return found

    def _complain(self, field: str, expected: str) -> None:
        self.complaints.append(f"{field} was dropped: expected {expected}")


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _typed(kind: type) -> Callable[[Any], Any]:
    return lambda value: value if isinstance(value, kind) else None


def _suggested_action(value: Any) -> SuggestedAction | None:
    if not isinstance(value, dict):
        return None
    action_id, label = _name(value.get("action_id")), _name(value.get("label"))
    if action_id is None or label is None:
        return None
    return SuggestedAction(action_id=action_id, label=label, params=_typed(dict)(value.get("params")) or {})


ANSWER_KEYS = (
    "raw_answer",
    "answer",
    "text",
    "result",
    "output",
    "response",
    "message",
    "content",
    "summary",
    "explanation",
    "description",
)
"""Keys that may hold the answer, in order of preference."""

MIN_REMARK_CHARACTERS = 10
_HIDDEN = object()


def text_in(value: Any, *, data: bool = True) -> str | None:
    """Return the answer text of an observation, in the order that docs/planner.md gives; None when it holds none.

    `data`: as a last resort, an observation without text is returned as JSON.
    """
    value = None if (kept := _visible(plain(value))) is _HIDDEN else kept
    if isinstance(value, Mapping) and (found := known_text(value) or remark_in(value)):
        return found
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, Mapping | list) and not data:
        return None
    return json.dumps(value, ensure_ascii=False) if value or isinstance(value, bool | int | float) else None


def known_text(value: Mapping[str, Any]) -> str | None:
    """Return the first text under an answer key, nested objects included."""
    return next((text for key in ANSWER_KEYS if (text := rendered(value.get(key)))), None)


def rendered(value: Any) -> str | None:
    """Return the value of an answer key as text.

    The value may be a text, a number, a list of texts, or an object with an answer key of its own.
    """
    if isinstance(value, str):
        return value if value.strip() and not is_placeholder(value) else None
    if isinstance(value, Mapping):
        return known_text(value)
    if isinstance(value, list):
        texts = [item for item in value if isinstance(item, str) and not is_placeholder(item)]
        return "\n".join(texts) if len(texts) == len(value) and any(text.strip() for text in texts) else None
    return None if value is None else json.dumps(value)


def remark_in(value: Mapping[str, Any]) -> str | None:
    """Return the only string longer than ten characters, here or in the object under an answer key."""
    texts = (text for text in value.values() if isinstance(text, str) and not is_placeholder(text))
    remarks = [text for text in texts if len(text) > MIN_REMARK_CHARACTERS and text.strip()]
    if len(remarks) == 1:
        return remarks[0]
    inner = (value[key] for key in ANSWER_KEYS if isinstance(value.get(key), Mapping))
    return None if remarks else next((text for part in inner if (text := remark_in(part))), None)


def _visible(value: Any) -> Any:
    """Return a value without artifacts; `_HIDDEN` for one that is an artifact."""
    if is_placeholder(value) or as_reference(value) is not None:
        return _HIDDEN
    if isinstance(value, Mapping):
        return {key: part for key, item in value.items() if (part := _visible(item)) is not _HIDDEN}
    if isinstance(value, list):
        return [part for item in value if (part := _visible(item)) is not _HIDDEN]
    return value
