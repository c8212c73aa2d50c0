"""Check values against the JSON Schemas of tools. Offline: a reference to another document is refused, never fetched.

Rule 1: the size of a schema and the cost of a check are bounded before any work (`bounds`): a schema of 3 KB can
expand to more subschemas than can be checked.
Rule 2: the bounds count work, not time, so that all processes get the same result.
Rule 3: a costly check in a thread beside the event loop is passed to another process, so the loop does not wait for it.
"""

import json
import threading
from collections.abc import Callable, Container, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Any

import jsonschema_rs
import orjson

from services.runtime.check_worker import CheckTooCostly, run_check
from services.shared.json_schema import bounds
from services.shared.json_schema.bounds import InvalidSchema
from services.shared.redaction.json_values import wire_size

__all__ = ["InvalidSchema", "certain_faults", "check_schema", "complaints"]

_MAX_COMPLAINTS = 5
_MAX_CERTAIN_FAULTS = 100
_MAX_MESSAGE_CHARACTERS = 300
_MAX_COUNTED_PAIRS = 50_000
"""Pairs of a subschema and a part of a value that are counted before a check, plus one per byte of the value."""
_MAX_EXPLAINED_PAIRS = 20_000
"""Pairs that are counted before explaining why a value does not fit."""
_MAX_LISTED_STEPS = 20_000
"""Steps of a check up to which all faults are listed: the checker builds the complete list before it returns the
first."""
_MAX_ALTERNATIVE_STEPS = 2_000
"""Steps inside alternatives that an explanation may describe."""
_COSTLY_STEPS = 500_000
_COSTLY_COUNTED_BYTES = 16 << 10
"""Bytes of a value whose steps have to be counted, which takes longer than the check."""
_UNDECLARED = "<name>"
"""Stands for the name of a member that the schema does not declare: such names are part of the value."""
_OF_NAMES = frozenset({"AdditionalProperties", "PropertyNames", "UnevaluatedProperties"})
"""Kinds of faults whose sentence quotes names of members."""
_OF_FORM = frozenset(
    {"Type", "Required", "AdditionalProperties", "MinItems", "MaxItems", "MinProperties", "MaxProperties"}
)
"""Kinds of faults of an object or list that no value inside of it changes."""
_CONDITIONAL = frozenset({"if", "then", "else", "dependentSchemas"})
_NO_DETAILS = "the value does not fit, and it or the schema is too large to say in which way"


def _refuse(uri: str) -> Any:
    raise InvalidSchema(f"the reference {uri!r} points to another document; put it under $defs")


class _Checker:
    """A compiled schema within the bounds."""

    def __init__(self, text: bytes, mask: str | None) -> None:
        schema = json.loads(text)
        bounds.check_text(len(text), schema)
        nodes = bounds.read_counted(schema)
        self._root = nodes[0]
        self._size = bounds.size_of(nodes)
        self._declared = None if mask is None else {name for node in nodes for name in node.properties}
        self._validator = jsonschema_rs.Draft202012Validator(
            schema, retriever=_refuse, validate_formats=False, mask=mask
        )

    def is_costly(self, value: Any) -> bool:
        """Whether a check of the value would hold up others for longer than passing it to another process takes."""
        size = wire_size(value)
        return self._size.expanded * size > _COSTLY_STEPS or (self._size.counts and size > _COSTLY_COUNTED_BYTES)

    def complaints(self, value: Any) -> list[str]:
        found = self.errors(value)
        return [_NO_DETAILS] if found is None else [_sentence(error, self._declared) for error in found]

    def errors(self, value: Any, most: int = _MAX_COMPLAINTS) -> list[Any] | None:
        """Return why a value does not fit, as far as that costs no more than the check; None: it cannot be said."""
        size = wire_size(value)
        if self._size.counts or self._size.expanded * size > bounds.MAX_STEPS:
            bounds.work_of(self._root, value, _MAX_COUNTED_PAIRS + size)
        if self._validator.is_valid(value):
            return []
        try:
            work = (
                bounds.work_of(self._root, value, _MAX_EXPLAINED_PAIRS)
                if self._size.expanded * size > _MAX_ALTERNATIVE_STEPS
                else bounds.Work(0)
            )
        except bounds.TooMuchWork:
            return None
        if work.steps <= _MAX_LISTED_STEPS and work.alternatives <= _MAX_ALTERNATIVE_STEPS:
            return [*islice(self._validator.iter_errors(value), most)]
        if work.worst > _MAX_ALTERNATIVE_STEPS:
            return None
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


@lru_cache(maxsize=4096)
def _checker(text: bytes, mask: str | None = None) -> _Checker:
    try:
        return _Checker(text, mask)
    except InvalidSchema:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(str(error)[:_MAX_MESSAGE_CHARACTERS]) from error


def check_schema(schema: dict[str, Any]) -> None:
    """Raise InvalidSchema if `schema` is not a usable JSON Schema (draft 2020-12), or exceeds the bounds."""
    _checker(_packed(schema))


def _packed(schema: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(schema)
    except TypeError:  # An integer beyond 64 bits, or more depth than it takes.
        pass
    try:
        return json.dumps(schema).encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise InvalidSchema(str(error)[:_MAX_MESSAGE_CHARACTERS]) from error


def complaints(value: Any, schema: dict[str, Any], *, masked: bool = False) -> list[str]:
    """Return one sentence per fault of `value` with its path, at most five; empty when it fits.

    Raises InvalidSchema for a schema that cannot be used, or with which checking this value would take too long.

    `masked`: the sentences quote no values, and below the value's own members no names that the schema does not
    declare. Use it for tool results, which may hold values that the model may not see.
    """
    text, mask = _packed(schema), "the value" if masked else None
    checker = _checker(text, mask)
    if threading.current_thread() is threading.main_thread() or not checker.is_costly(value):
        return checker.complaints(value)
    try:
        return run_check(partial(_complaints, text, mask, value))
    except CheckTooCostly as error:
        raise bounds.TooMuchWork(f"a check of the value was ended: {error}") from error


def _complaints(text: bytes, mask: str | None, value: Any) -> list[str]:
    return _checker(text, mask).complaints(value)


def certain_faults(
    arguments: dict[str, Any], schema: dict[str, Any], is_open: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """Return path and sentence of each fault that stays whatever values replace the open strings, such as templates.

    Faults that cannot be told apart from those of open strings are none, nor are those of an unusable schema, or of
    arguments whose check is costly: the call itself is checked.
    """

    def is_undecided(part: Any) -> bool:
        box = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return is_open(part) if isinstance(part, str) else any(map(is_undecided, box))

    try:
        checker = _checker(_packed(schema))
        errors = None if checker.is_costly(arguments) else checker.errors(arguments, _MAX_CERTAIN_FAULTS)
    except InvalidSchema:
        return []
    found, depends = [], is_undecided(arguments)
    for error in errors or ():
        if depends and not _CONDITIONAL.isdisjoint(error.evaluation_path):
            continue
        is_of_form = isinstance(error.instance, dict | list) and type(error.kind).__name__ in _OF_FORM
        if is_of_form or not is_undecided(error.instance):
            found.append((_path(error.instance_path), _cut(error.message)))
    return found


def _path(parts: Sequence[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")


def _cut(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE_CHARACTERS else message[:_MAX_MESSAGE_CHARACTERS] + "…"


def _sentence(error: Any, declared: Container[str] | None) -> str:
    """Describe a fault. `declared`: the only names of inner members that it may say; None: it may say all."""
    inner = list(error.instance_path)
    if declared is not None:
        inner[1:] = [part if isinstance(part, int) or part in declared else _UNDECLARED for part in inner[1:]]
    path, message = _path(inner), error.message
    if declared is not None and inner and type(error.kind).__name__ in _OF_NAMES:
        message = "the value has a member whose name is not allowed"
    return f"{path}: {_cut(message)}" if path else _cut(message)
