"""Parse and check what a tool has answered."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from contracts.tools.messages import CallRequested, ToolSpec
from services.runtime import exact_json
from services.shared.json_schema.checks import InvalidSchema, complaints
from services.tool_runner.errors import InvalidResult
from services.tool_runner.transports.driver import ResultBody

T = TypeVar("T")

MAX_INLINE_WORK_BYTES = 32 * 1024
"""Smaller results and arguments are processed without a thread."""
_MAX_DEPTH = 100


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Run work whose duration depends on a number of bytes: in a thread if there are many."""
    return work() if size <= MAX_INLINE_WORK_BYTES else await asyncio.to_thread(work)


def read_result(call: CallRequested, spec: ToolSpec, result: ResultBody) -> Any:
    """Parse and check a tool's result. Text alone is null; a tool with an output schema has to give more.

    Raises InvalidResult, without quoting the result, which may hold hidden values.
    """
    body = result.read()
    if not body and spec.output_schema is not None:
        raise InvalidResult(f"{call.tool} gave no structuredContent, which its outputSchema requires: send a result")
    if not body and result.content is not None:
        return None
    try:
        value = exact_json.loads_strictly(body)
        is_deep = is_too_deep(value, body)
    except ValueError as error:
        raise InvalidResult(f"what {call.tool} answered is no JSON: {error}") from error
    except RecursionError:
        is_deep = True
    if is_deep:
        raise InvalidResult(f"what {call.tool} answered is nested more than {_MAX_DEPTH} levels deep")
    if spec.output_schema is not None:
        try:
            found = complaints(value, spec.output_schema, masked=True)
        except InvalidSchema as error:
            raise InvalidResult(f"the output schema of {call.tool} cannot be used: {error}") from error
        if found:
            raise InvalidResult(f"what {call.tool} answered does not fit its outputSchema: {'; '.join(found)}")
    return value


def is_too_deep(value: Any, body: bytes) -> bool:
    """Return whether a value is nested deeper than messages may be. `body`: the JSON that it was parsed from."""
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
