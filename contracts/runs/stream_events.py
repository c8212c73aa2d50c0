"""Events on a run's stream: what people watch while it happens. They decide nothing and may expire."""

from typing import Any, Literal

from pydantic import Field

from ..wire.base import Message


class Chunk(Message):
    """Characters of the answer, in reading order.

    If there are several attempts, the newest counts. `seq` counts from 0 in each attempt.
    """

    type: Literal["chunk"] = "chunk"
    stream_id: str = "answer"
    seq: int
    text: str
    done: bool = False
    channel: Literal["answer"] = "answer"
    phase: Literal["answer"] = "answer"
    action_seq: int
    attempt: int


class Thinking(Message):
    """Native reasoning of the model, in reading order."""

    type: Literal["thinking"] = "thinking"
    stream_id: str = "thinking"
    seq: int
    text: str
    done: bool = False
    channel: Literal["thinking"] = "thinking"
    phase: Literal["thinking"] = "thinking"
    action_seq: int
    attempt: int


class CallStarted(Message):
    """A tool that is not idempotent is about to be called, or a direct call may have begun and has no outcome yet.

    If the tool never replies, the outcome of the call is unknown.
    """

    type: Literal["call_started"] = "call_started"
    call_id: str
    tool: str
    round: int = Field(default=0, description="how many pauses of the tool the call has had")


class ToolProgress(Message):
    """Progress of a call: a text for people, and `fraction` from 0 to 1."""

    type: Literal["tool_progress"] = "tool_progress"
    call_id: str
    tool: str
    message: str = ""
    fraction: float | None = None


class ArtifactChunk(Message):
    """A piece of an artifact while it grows. `seq` counts from 0 without gaps, per call and stream."""

    type: Literal["artifact_chunk"] = "artifact_chunk"
    stream_id: str
    seq: int
    chunk: Any
    done: bool = False
    artifact_type: str | None = None
    tool: str
    call_id: str


class ArtifactStored(Message):
    """A large part of a tool's result was stored as an artifact. The gateway serves it.

    `field` is its dotted path in the result.
    """

    type: Literal["artifact_stored"] = "artifact_stored"
    artifact_id: str
    mime_type: str
    size: int
    tool: str
    call_id: str
    field: str
    artifact_type: str | None = None


class ControlAnswered(Message):
    """The answer to a person's request to a run, such as a decision about a pause. `id` is that of the request."""

    type: Literal["control_answered"] = "control_answered"
    id: str
    code: str | None = Field(default=None, description="why the request was refused; null: it took effect")
    reason: str = ""
    is_repeated: bool = Field(default=False, description="an earlier request with this id took effect")
