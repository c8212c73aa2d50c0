"""The events of a run: the union that the gateway streams, and the events of the run as a whole.

Events on the run's log are facts and decide its state. Events on its stream (tokens, progress) may expire. Listeners
get both. An event whose type this version does not know is an `UnknownEvent`: it is passed on and changes nothing.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler

from .base import Message
from .images import ImageRef, VisionContextPolicy
from .payload import FinalPayload, Reason, Usage
from .runs import Effort, RequestedEffort, RunLimits, RunRequested
from .step_events import (
    Asked,
    AskedCause,
    Called,
    Compacted,
    ModelFailed,
    Observed,
    PlannedCall,
    Repaired,
    Step,
    StepStatus,
)
from .stream_events import ArtifactChunk, ArtifactStored, CallStarted, Chunk, Thinking, ToolProgress

__all__ = [
    "KNOWN",
    "TERMINAL",
    "ActionFormat",
    "ActionTransport",
    "ArtifactChunk",
    "ArtifactStored",
    "Asked",
    "AskedCause",
    "CallStarted",
    "Called",
    "Cancelled",
    "Chunk",
    "Compacted",
    "Deleted",
    "Done",
    "Error",
    "KnownEvent",
    "ModelFailed",
    "Observed",
    "Paused",
    "PlannedCall",
    "Reflection",
    "Repaired",
    "Resumed",
    "RunEvent",
    "RunStarted",
    "Step",
    "StepStatus",
    "Stopping",
    "Terminal",
    "Thinking",
    "ToolProgress",
    "ToppedUp",
    "Triaged",
    "UnknownEvent",
]

ActionFormat = Literal["auto", "unified", "legacy"]
ActionTransport = Literal["json", "tools"]


class Reflection(Message):
    """A critique of the answer before the run ends. Below `threshold` it is revised, at most `max_revisions` times."""

    threshold: float = Field(default=0.7, ge=0, le=1)
    max_revisions: int = Field(default=1, ge=0, le=5)
    model: str | None = Field(default=None, description="of the critique; null: the model of the run")


class RunStarted(Message):
    """A planner opened the run. This is the first fact, unless a cancel arrived before the request."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    tenant: str
    request: RunRequested
    limits: RunLimits
    tools: dict[str, str] = Field(
        default_factory=dict, description="tool name -> digest of the specification, which the run uses until its end"
    )
    has_tool_context: bool = Field(
        default=False, description="the request's `tool_context` is stored apart from the log, for tools only"
    )
    approvals: list[str] = Field(
        default_factory=list, description="tools whose calls need a person's approval; such calls end without running"
    )
    model: str = Field(
        default="", description="as configured or requested; a fallback model is named by `model_failed`"
    )
    models: list[str] = Field(default_factory=list, description="models among which a triage may choose")
    fallbacks: list[str] = Field(
        default_factory=list, description="models that are called, in this order, when the model fails"
    )
    effort: RequestedEffort | None = Field(default=None, description="reasoning effort; `auto`: a triage chooses it")
    triage_model: str | None = None
    reflection: Reflection | None = None
    action_format: ActionFormat = Field(
        default="auto",
        description="the form of decisions that the prompt asks for, and the forms that are accepted",
    )
    action_transport: ActionTransport = Field(
        default="json", description="decisions as JSON in the reply, or as native tool calls"
    )
    images: list[ImageRef] = Field(default_factory=list, description="images of the request that the model is shown")
    vision_context: VisionContextPolicy | None = Field(
        default=None, description="which images of tools the model is shown; null: none"
    )
    warnings: list[str] = Field(default_factory=list)
    deadline_at: int | None = Field(default=None, description="Unix ms")


class Triaged(Message):
    """A triage, one cheap model call per run, chose the reasoning effort, and the model if several are named."""

    type: Literal["triaged"] = "triaged"
    effort: Effort
    model: str | None = None
    usage: Usage | None = None


class Paused(Message):
    """The run waits for a person or program. It ends at `until` if nobody acts.

    `reason` budget: it waits for a top-up of the named budget.
    """

    type: Literal["paused"] = "paused"
    reason: Literal["budget"] = "budget"
    budget: str = Field(description="the budget that is spent, with its limit")
    until: int = Field(description="Unix ms")


class ToppedUp(Message):
    """The run may spend more. `limits` are its total limits from now on; `by` is the id of the request."""

    type: Literal["topped_up"] = "topped_up"
    limits: RunLimits
    deadline_at: int | None = Field(default=None, description="Unix ms")
    by: str


class Resumed(Message):
    """A paused run continues."""

    type: Literal["resumed"] = "resumed"


class Stopping(Message):
    """The run is being cancelled during a model call. No more of the reply is stored.

    `cancelled` follows, with the text that was shown.
    """

    type: Literal["stopping"] = "stopping"
    reason: str = ""


_LAST_STREAM_SEQ_TEXT = (
    "sequence of the newest record on the run's stream: a listener that has followed the stream up to it has all of "
    "it; 0: there is none; null: not known, so read the stream's end"
)
LastStreamSeq = Annotated[int | None, Field(description=_LAST_STREAM_SEQ_TEXT)]


class Done(FinalPayload):
    """The run ended with an answer, or with the results so far when a budget was spent.

    Its record may begin with the last `thinking` and `chunk` events of the answer, which are then not on the stream.
    """

    type: Literal["done"] = "done"
    reason: Reason
    usage: Usage = Usage()
    last_stream_seq: LastStreamSeq = None


class Error(Message):
    """The run ended because of a failure."""

    type: Literal["error"] = "error"
    error: str
    code: str
    trace_id: str
    payload: FinalPayload
    usage: Usage = Usage()
    last_stream_seq: LastStreamSeq = None


class Cancelled(Message):
    """The run was stopped by a person or program."""

    type: Literal["cancelled"] = "cancelled"
    reason: str = ""
    payload: FinalPayload
    usage: Usage = Usage()
    last_stream_seq: LastStreamSeq = None


class Deleted(Message):
    """The run was deleted after it had ended. Nothing else is left on its log; listeners should delete their copy."""

    type: Literal["deleted"] = "deleted"


class UnknownEvent(Message):
    """An event of a type that this version does not know."""

    model_config = ConfigDict(extra="allow")

    type: str


Terminal = Done | Error | Cancelled
TERMINAL = frozenset({"done", "error", "cancelled", "deleted"})
"""Types of events after which nothing follows. `deleted` itself follows another one of these."""

KnownEvent = Annotated[
    RunStarted
    | Triaged
    | Asked
    | Step
    | Called
    | Observed
    | Repaired
    | ModelFailed
    | Compacted
    | Paused
    | ToppedUp
    | Resumed
    | Stopping
    | Done
    | Error
    | Cancelled
    | Deleted
    | Chunk
    | Thinking
    | CallStarted
    | ToolProgress
    | ArtifactChunk
    | ArtifactStored,
    Discriminator("type"),
]
KNOWN: tuple[type[Message], ...] = get_args(get_args(KnownEvent)[0])
_TYPES = frozenset(str(model.model_fields["type"].default) for model in KNOWN)


class _KnownFirst:
    """Chooses the class by the type's name.

    pydantic does that without a call back into Python, so records are parsed in two thirds of the time. The schema is
    one list of alternatives, as its readers expect it.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        union: Any = handler(source)
        # An error message contains the labels instead of a list of all types.
        labels = ("known", "unknown")
        return {**union, "mode": "left_to_right", "choices": list(zip(union["choices"], labels, strict=True))}

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        known, unknown = handler(schema)["anyOf"]
        return {"oneOf": [*known["oneOf"], unknown]}


def _new(event: UnknownEvent) -> UnknownEvent:
    if event.type in _TYPES:
        raise ValueError("an event of this type has other fields")
    return event


RunEvent = Annotated[KnownEvent | Annotated[UnknownEvent, AfterValidator(_new)], _KnownFirst()]
