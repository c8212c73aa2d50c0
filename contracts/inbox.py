"""The messages to a run: results and timers on its inbox subject, requests of people on its control subject."""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from .base import Message
from .faults import Fault
from .payload import Source


class CallFinished(Message):
    """The one outcome of a tool call: tool_runner to planner."""

    v: Literal[1] = 1
    kind: Literal["call_finished"] = "call_finished"
    call_id: str
    tool: str
    status: Literal["succeeded", "failed"]
    observation: Any = Field(default=None, description="the part of the result that the model sees")
    failure: Fault | None = None
    artifacts: dict[str, Any] = Field(
        default_factory=dict, description="dotted path in the result -> JSON value or ArtifactRef"
    )
    sources: list[Source] = Field(default_factory=list)
    warnings: list[str] = Field(
        default_factory=list, description="parts of the result that were left out, for the run's payload"
    )
    latency_ms: int = 0


class TimerFired(Message):
    """A timer of the run has fired."""

    v: Literal[1] = 1
    kind: Literal["timer"] = "timer"
    timer: Literal["deadline", "pause", "retry"]
    at: int | None = Field(
        default=None, description="the time that it was set for, Unix ms; it is ignored if the timer was set again"
    )


class CancelRequested(Message):
    """A request to end the run now."""

    v: Literal[1] = 1
    kind: Literal["cancel"] = "cancel"
    reason: str = ""


class TopUpRequested(Message):
    """A request to let the run spend more. `limits` are fields of RunLimits, counted from now on.

    Each `id` is applied once.
    """

    v: Literal[1] = 1
    kind: Literal["top_up"] = "top_up"
    id: str
    limits: dict[str, Any]


class RunResumed(Message):
    """A paused run may continue. It is sent to the inbox, since the control consumer never calls models."""

    v: Literal[1] = 1
    kind: Literal["resumed"] = "resumed"


InboxMessage = Annotated[
    CallFinished | TimerFired | CancelRequested | TopUpRequested | RunResumed, Field(discriminator="kind")
]
INBOX_MESSAGE: TypeAdapter[CallFinished | TimerFired | CancelRequested | TopUpRequested | RunResumed] = TypeAdapter(
    InboxMessage
)
