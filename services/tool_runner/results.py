"""Settle a call: read its result, check it against the output schema, and take it apart for the model and for people.

Rule: whatever a tool answers, exactly one CallFinished comes out of it, small enough for the inbox.
"""

from collections import OrderedDict
from typing import Any

import orjson

from contracts.faults import Fault
from contracts.inbox import CallFinished
from contracts.tools import CallRequested, ToolSpec
from services.runtime.marks import Marks, read_marks, separate
from services.runtime.schemas import InvalidSchema, complaints

from .errors import CallFailed, InvalidArguments, InvalidResult, ResultTooLarge

MAX_FINISHED_BYTES = 512 * 1024
_MAX_DEPTH = 100
_MAX_KNOWN = 1024


class KnownMarks:
    """The marks of output schemas that were read before."""

    def __init__(self) -> None:
        self._marks: OrderedDict[str, Marks] = OrderedDict()

    def of(self, digest: str, spec: ToolSpec) -> Marks:
        """Return the marks of a specification."""
        marks = self._marks.get(digest)
        if marks is None:
            marks = self._marks[digest] = read_marks(spec.output_schema)
            if len(self._marks) > _MAX_KNOWN:
                self._marks.popitem(last=False)
        return marks


def check_arguments(call: CallRequested, spec: ToolSpec) -> None:
    """Raise InvalidArguments with the schema's complaints."""
    try:
        found = complaints(call.args, spec.input_schema)
    except InvalidSchema as error:
        raise InvalidArguments(f"the input schema of {call.tool} cannot be used: {error}") from error
    except (TypeError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are nested too deep: {error}") from error
    if found:
        raise InvalidArguments(f"the arguments do not fit {call.tool}: {'; '.join(found)}")


def read_result(call: CallRequested, spec: ToolSpec, body: bytes) -> Any:
    """Return the value that a tool answered. Raises InvalidResult, which repeats nothing of it: it may hold what is marked."""
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise InvalidResult(f"what {call.tool} answered is no JSON: {error}") from error
    if _is_deeper(value, body):
        raise InvalidResult(f"what {call.tool} answered is nested more than {_MAX_DEPTH} levels deep")
    if spec.output_schema is not None:
        try:
            found = complaints(value, spec.output_schema, masked=True)
        except InvalidSchema as error:
            raise InvalidResult(f"the output schema of {call.tool} cannot be used: {error}") from error
        if found:
            raise InvalidResult(f"what {call.tool} answered does not fit its own output schema: {'; '.join(found)}")
    return value


def succeeded(call: CallRequested, value: Any, marks: Marks, streamed: list[str], latency_ms: int) -> bytes:
    """Return the encoded outcome of a call that has a result. Raises ResultTooLarge or InvalidResult."""
    parts = separate(value, marks, streamed=streamed)
    try:
        finished = CallFinished(
            call_id=call.call_id,
            tool=call.tool,
            status="succeeded",
            observation=parts.observation,
            artifacts=parts.artifacts,
            sources=parts.sources,
            latency_ms=latency_ms,
        )
        body = finished.model_dump_json().encode()
    except (ValueError, RecursionError) as error:
        raise InvalidResult(f"what {call.tool} answered cannot be passed on: {type(error).__name__}") from error
    if len(body) > MAX_FINISHED_BYTES:
        raise ResultTooLarge(
            f"the result of {call.tool} takes {len(body)} bytes, and at most {MAX_FINISHED_BYTES} can be kept;"
            " ask for less, or for a part of it"
        )
    return body


def failed(call_id: str, tool: str, fault: Fault, latency_ms: int = 0) -> bytes:
    """Return the encoded outcome of a call that has none."""
    return CallFinished(call_id=call_id, tool=tool, status="failed", failure=fault, latency_ms=latency_ms).model_dump_json().encode()


def settle(call: CallRequested, spec: ToolSpec, marks: Marks, body: bytes, streamed: list[str], latency_ms: int) -> bytes:
    """Return the encoded outcome for what a tool answered, whatever that is."""
    try:
        return succeeded(call, read_result(call, spec, body), marks, streamed, latency_ms)
    except CallFailed as failure:
        return failed(call.call_id, call.tool, failure.fault(), latency_ms)


def _is_deeper(value: Any, body: bytes) -> bool:
    if body.count(b"[") + body.count(b"{") <= _MAX_DEPTH:
        return False
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            item
            for parent in level
            for item in (parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ())
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
