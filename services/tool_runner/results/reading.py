"""Parse and check what a tool has answered.

Check the pause that a tool asks for, and build the message to its run.

Rule: a pause that reaches the planner can be shown, answered and resumed: its schema can be used, its default fits the
schema, and all of it fits into a record.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from contracts.runs.inbox import CallPaused
from contracts.runs.pauses import DEFAULT_PAUSE_S, MAX_PAUSE_S, MAX_STATE_BYTES
from contracts.tools.messages import CallRequested, PauseReply, ToolSpec
from contracts.wire.faults import describe
from contracts.wire.limits import KIB, MAX_OUTCOME_BYTES
from runwire.plans.templates import is_deeper
from services.runtime import exact_json
from services.shared.json_schema.checks import InvalidSchema, check_schema, complaints
from services.shared.redaction.placeholders import wire_size
from services.tool_runner.errors import InvalidPause, InvalidResult
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
    return body.count(b"[") + body.count(b"{") > _MAX_DEPTH and is_deeper(value, _MAX_DEPTH)


_MAX_ANSWERS_BYTES = 192 * KIB
"""Of all answers before a further pause: the next round brings them again, in one message with the arguments."""


def read_pause(call: CallRequested, data: bytes) -> PauseReply:
    """Return what the tool asks. Raises InvalidPause, which tells the tool's author what is wrong."""
    try:
        pause = PauseReply.model_validate_json(data)
    except ValidationError as error:
        raise InvalidPause(f"the pause of {call.tool} cannot be used: {describe(error)}") from error
    if (fault := _fault(call, pause, data)) is not None:
        raise InvalidPause(f"the pause of {call.tool} cannot be used: {fault}")
    return pause


def _fault(call: CallRequested, pause: PauseReply, data: bytes) -> str | None:
    if is_too_deep([pause.payload, pause.state, pause.default_answer], data):
        return "it is nested too deep"
    if pause.reason == "budget":
        return "only a run waits for a budget"
    if pause.number != len(call.answers):
        return f"its number is {pause.number}, and the call has had {len(call.answers)} answers"
    if (size := wire_size([answer.model_dump() for answer in call.answers])) > _MAX_ANSWERS_BYTES:
        return f"the answers so far have {size:,} bytes, and no call with more than {_MAX_ANSWERS_BYTES:,} may pause"
    if (size := wire_size(pause.state)) > MAX_STATE_BYTES:
        return f"`state` has {size:,} bytes, and at most {MAX_STATE_BYTES:,} are kept between rounds"
    if pause.input_schema is not None:
        try:
            check_schema(pause.input_schema)
            found = complaints(pause.default_answer, pause.input_schema) if pause.default == "answer" else []
        except InvalidSchema as error:
            return f"`input_schema` cannot be used: {error}"
        if found:
            return f"`default_answer` does not fit `input_schema`: {'; '.join(found)}"
    return None


def paused(call: CallRequested, pause: PauseReply, payload: Any) -> bytes:
    """Return the encoded CallPaused; `payload`: that of the pause, or a reference. Raises InvalidPause."""
    message = CallPaused(
        call_id=call.call_id,
        tool=call.tool,
        round=call.round,
        number=pause.number,
        reason=pause.reason,
        title=pause.title,
        payload=payload,
        input_schema=pause.input_schema,
        state=pause.state,
        expires_in_s=min(pause.expires_in_s or DEFAULT_PAUSE_S, MAX_PAUSE_S),
        default=pause.default,
        default_answer=pause.default_answer if pause.default == "answer" else None,
    )
    body = message.model_dump_json().encode()
    if len(body) > MAX_OUTCOME_BYTES:
        most = f"at most {MAX_OUTCOME_BYTES} can be kept"
        raise InvalidPause(f"the pause of {call.tool} takes {len(body)} bytes, and {most}: make its schema smaller")
    return body
