"""`ctx.pause`: a tool asks a person. The function ends there, and no process waits; the next round brings the answer.

Rule 1: in each round the function runs from its beginning. Its pauses are counted from 0, and those that have an answer
return it at once; the first without one ends the round.
Rule 2: what ends a round is a BaseException, which `except Exception` lets pass. A function that catches it all the
same fails: its caller would take what it returns for the result.
"""

from collections.abc import Generator, Sequence
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from contracts.runs.pauses import MAX_STATE_BYTES, PauseAnswer
from contracts.tools import messages as wire
from contracts.wire.faults import describe
from contracts.wire.limits import MAX_OUTCOME_BYTES
from runwire.errors import ToolError

Reason = Literal["input", "approval", "confirmation"]
M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class Paused(BaseException):
    """Ends a round of a call: the function waits for a person. `pause` is what the caller receives."""

    def __init__(self, pause: wire.PauseReply) -> None:
        super().__init__("ctx.pause ends this round of the call with this exception: do not catch it")
        self.pause = pause


class Answer(Generic[M_co]):
    """What `ctx.pause` returns: a coroutine awaits it, a plain function reads `value`."""

    def __init__(self, value: M_co) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, M_co]:
        return self.value
        yield  # makes this a generator


class Pauses:
    """The pauses of one call in one round. Contexts inherit `pause` and `state`.

    `state` is kept from round to round: what must not happen twice is noted there.
    """

    def __init__(self, answers: Sequence[PauseAnswer], state: dict[str, Any], *, accepted: bool = True) -> None:
        """`accepted`: the caller accepts pauses."""
        self.state = state
        self._answers = {answer.number: answer for answer in answers}
        self._accepted = accepted
        self._count = 0
        self._paused: Paused | None = None

    def pause(
        self,
        reason: Reason = "input",
        payload: Any = None,
        *,
        schema: Any = None,
        title: str = "",
        expires: timedelta | None = None,
        default: Any = None,
    ) -> Answer[Any]:
        """Ask a person; `ToolContext.pause` says more."""
        if self._paused is not None:
            raise self._paused
        if reason != "input" and schema is not None:
            raise ValueError(f"a person approves or rejects a pause for {reason}: only one for `input` has a schema")
        number, self._count = self._count, self._count + 1
        adapter = None if schema is None or isinstance(schema, dict) else TypeAdapter[Any](schema)
        answer = self._answers.get(number)
        if answer is not None:
            return Answer(_value(answer, adapter))
        if not self._accepted:
            raise ToolError(
                "this tool asks a person, and its caller cannot wait for the answer", code="pause_unsupported"
            )
        json_schema = schema if adapter is None else adapter.json_schema()
        reply = wire.PauseReply(
            number=number,
            reason=reason,
            title=title,
            payload=_as_json(payload),
            input_schema=json_schema,
            state=_as_json(self.state),
            expires_in_s=None if expires is None else expires.total_seconds(),
            default="reject" if default is None else "answer",
            default_answer=_as_json(default),
        )
        if (size := len(to_json(reply.state))) > MAX_STATE_BYTES:
            raise ValueError(f"ctx.state has {size:,} bytes as JSON, and at most {MAX_STATE_BYTES:,} are kept")
        if (size := len(reply.model_dump_json())) > MAX_OUTCOME_BYTES:
            most = f"{MAX_OUTCOME_BYTES:,} bytes with its payload and schema"
            raise ValueError(f"a pause has at most {most}, not {size:,}")
        self._paused = Paused(reply)
        raise self._paused

    def check_not_caught(self) -> None:
        """Raise ToolError if the function has returned although it has paused."""
        if self._paused is not None:
            raise ToolError(
                "the tool caught what ctx.pause raises, and returned a result: it must let that exception pass",
                code="invalid_pause",
            )


def pause_in(error: BaseException) -> wire.PauseReply | None:
    """Return the pause with which a function has ended, also inside the group of a TaskGroup; None if it failed."""
    if isinstance(error, BaseExceptionGroup):
        pauses, others = error.split(Paused)
        error = error if pauses is None or others is not None else _first(pauses)
    return error.pause if isinstance(error, Paused) else None


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _value(answer: PauseAnswer, adapter: TypeAdapter[Any] | None) -> Any:
    if answer.decision == "reject":
        raise ToolError(f"a person said no: {answer.note}" if answer.note else "a person said no", code="rejected")
    if adapter is None:
        return True if answer.decision == "approve" and answer.input is None else answer.input
    try:
        return adapter.validate_json(to_json(answer.input))
    except ValidationError as error:
        raise ToolError(f"the answer does not fit what the tool asked for: {describe(error)}") from error


def _as_json(value: Any) -> Any:
    return from_json(to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="null"))
