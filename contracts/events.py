"""What happens in a run, as its listeners see it: the union that the gateway streams.

Facts live on the run's log and decide its state; tokens and progress live on its stream and may expire. Both are on the
wire. A type that this version does not know is an `UnknownEvent`: it is passed on and changes nothing.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler

from .actions import Join
from .base import Message
from .faults import Fault
from .images import ImageRef, VisionContextPolicy
from .payload import FinalPayload, Reason, Source, Usage
from .runs import RunLimits, RunRequested

StepStatus = Literal["started", "succeeded", "failed", "skipped", "invalid"]
ActionFormat = Literal["auto", "unified", "legacy"]
ActionTransport = Literal["json", "tools"]


class Reflection(Message):
    """Have an answer judged before the run ends: below `threshold` it is revised, at most `max_revisions` times."""

    threshold: float = Field(default=0.7, ge=0, le=1)
    max_revisions: int = Field(default=1, ge=0, le=5)
    model: str | None = Field(default=None, description="of the critique; null: the run's own")


class RunStarted(Message):
    """A planner opened the run. Always the first fact, unless a cancel overtook the request."""

    type: Literal["run_started"] = "run_started"
    run_id: str
    tenant: str
    request: RunRequested
    limits: RunLimits
    tools: dict[str, str] = Field(
        default_factory=dict, description="tool name -> digest of the specification that the run uses to its end"
    )
    has_tool_context: bool = Field(
        default=False, description="the request's `tool_context` is kept beside the log, for tools alone"
    )
    approvals: list[str] = Field(
        default_factory=list, description="tools whose calls need a person's approval: they end without running"
    )
    model: str = Field(default="", description="as configured or asked for; a fallback shows in `model_failed`")
    models: list[str] = Field(default_factory=list, description="main models among which a triage may choose")
    fallbacks: list[str] = Field(
        default_factory=list, description="models that are asked, in this order, where the model fails"
    )
    effort: Literal["low", "medium", "high", "auto"] | None = Field(
        default=None, description="reasoning effort; `auto`: a triage picks it"
    )
    triage_model: str | None = None
    reflection: Reflection | None = None
    action_format: ActionFormat = Field(
        default="auto", description="in which the model is asked for its decisions, and what is taken"
    )
    action_transport: ActionTransport = Field(
        default="json", description="decisions as JSON in the reply, or as native tool calls"
    )
    images: list[ImageRef] = Field(default_factory=list, description="those of the request that the model is shown")
    vision_context: VisionContextPolicy | None = Field(
        default=None, description="which images of tools it is shown; null: none"
    )
    warnings: list[str] = Field(default_factory=list)
    deadline_at: int | None = Field(default=None, description="Unix ms")


class Triaged(Message):
    """A cheap call has picked the reasoning effort, and the model where several are named; once per run."""

    type: Literal["triaged"] = "triaged"
    effort: Literal["low", "medium", "high"]
    model: str | None = None
    usage: Usage | None = None


AskedCause = Literal["turn", "lost", "repair", "provider", "compacted", "restated", "resumed"]


class Asked(Message):
    """The model is being asked.

    `by` is the message that owns the call, as `<stream>:<sequence>`; `holder` is the token of the attempt that streams.
    Another handling of the same message may call the model again; every other message leaves the call alone.
    """

    type: Literal["asked"] = "asked"
    turn: int
    attempt: int
    by: str
    holder: str
    model: str | None = Field(
        default=None,
        description="the model that is asked; null: the following `triaged` names it",
    )
    cause: AskedCause = "turn"
    """Why this attempt.

    `lost`: the one before died with its process; `repair`: see the `repaired` beside it; `provider`: see the
    `model_failed` beside it;
    `compacted`: the conversation was too long; `restated`: the answer is not as its beginning had been shown, so it is
    shown again, without asking the model; `resumed`: the run was paused meanwhile.
    """


class PlannedCall(Message):
    """One tool call of a step. `call_id` is unique in its run."""

    call_id: str
    tool: str
    args: dict[str, Any] = Field(default_factory=dict)


class Step(Message):
    """A decision: `started` when it is taken, another status with `latency_ms` when it has ended.

    The latency of a step with calls is from the decision to its last outcome; that of any other from the first time
    that the model was asked for it. `failed`: a call has failed, or an answer has no text.

    The first form carries what was decided. `answer` is set only where the run goes on after an answer.
    """

    type: Literal["step"] = "step"
    step: int
    node: str
    status: StepStatus
    latency_ms: int | None = None
    thought: str | None = None
    reasoning: str | None = Field(
        default=None, description="native reasoning of the model, for people; no later step needs it"
    )
    calls: list[PlannedCall] = Field(default_factory=list)
    join: Join | None = None
    note: str | None = Field(default=None, description="one line for the model, such as why a join did not run")
    answer: str | None = None
    by: str | None = None
    attempt: int | None = None
    usage: Usage | None = Field(default=None, description="of this decision's model calls")
    warnings: list[str] = Field(default_factory=list)


class Called(Message):
    """Calls of a step that did not start with it: those that waited for a free place (`max_parallel`), and the join of a plan."""

    type: Literal["called"] = "called"
    step: int
    by: str
    calls: list[PlannedCall]
    join: bool = False


class Observed(Message):
    """A call is settled, once. `observation` is what the model sees; artifacts travel beside it."""

    type: Literal["observed"] = "observed"
    call_id: str
    tool: str
    status: Literal["succeeded", "failed"]
    observation: Any = None
    failure: Fault | None = None
    artifacts: dict[str, Any] = Field(default_factory=dict)
    sources: list[Source] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list, description="what of the result was left out")
    latency_ms: int = 0


class Repaired(Message):
    """A reply of the model was invalid; the model got the reason and was called again.

    `repair`: it was no action, or an invalid one. `answer`: a final response without its text, which is asked for
    alone; `args` are its other fields. `revision`: the critique found the answer wanting.
    """

    type: Literal["repaired"] = "repaired"
    turn: int
    attempt: int
    reason: str
    kind: Literal["repair", "answer", "revision"] = "repair"
    args: dict[str, Any] | None = None
    reply: str = Field(default="", description="what the model had said, shortened")
    usage: Usage | None = None


class ModelFailed(Message):
    """A request to a model failed.

    `then` says what follows at `retry_at`: another request to the same model, or one to the next model. An `asked`
    with the cause `provider` begins it.
    """

    type: Literal["model_failed"] = "model_failed"
    turn: int
    attempt: int
    model: str
    fault: Fault
    then: Literal["retry", "fallback"]
    next_model: str
    wait_s: float = 0.0
    retry_at: int | None = Field(
        default=None,
        description="Unix ms: the end of the wait; null: an older version wrote this, and its attempt goes on",
    )
    usage: Usage | None = Field(default=None, description="of the failed request")


class Paused(Message):
    """The run waits for a person or program until `until`, and then ends.

    `reason` budget: for a top-up of the budget named.
    """

    type: Literal["paused"] = "paused"
    reason: Literal["budget"] = "budget"
    budget: str = Field(description="what ran out, with its limit")
    until: int = Field(description="Unix ms")


class ToppedUp(Message):
    """The run may spend more. `limits` are those that hold from now on, in all; `by` is the id of the request."""

    type: Literal["topped_up"] = "topped_up"
    limits: RunLimits
    deadline_at: int | None = Field(default=None, description="Unix ms")
    by: str


class Resumed(Message):
    """A paused run goes on."""

    type: Literal["resumed"] = "resumed"


class Compacted(Message):
    """The conversation with the model had become too long: lines of older messages are cut to `line_characters` from now on."""

    type: Literal["compacted"] = "compacted"
    turn: int
    cause: Literal["overflow", "threshold"]
    line_characters: int


class Stopping(Message):
    """The run is being cancelled while a model is asked: nothing more of its reply is stored.

    `cancelled` follows, with what was shown.
    """

    type: Literal["stopping"] = "stopping"
    reason: str = ""


class Done(FinalPayload):
    """The run ended with an answer, or with what it had when a budget ran out."""

    type: Literal["done"] = "done"
    reason: Reason
    usage: Usage = Usage()


class Error(Message):
    """The run ended because something failed that it could not survive."""

    type: Literal["error"] = "error"
    error: str
    code: str
    trace_id: str
    payload: FinalPayload
    usage: Usage = Usage()


class Cancelled(Message):
    """The run was stopped by a person or program."""

    type: Literal["cancelled"] = "cancelled"
    reason: str = ""
    payload: FinalPayload
    usage: Usage = Usage()


class Deleted(Message):
    """The run was deleted, after it had ended: forget what you have of it. Nothing else is left on its log."""

    type: Literal["deleted"] = "deleted"


class Chunk(Message):
    """Characters of the answer, in reading order.

    Of several attempts the newest counts; `seq` counts from 0 in each.
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
    """A tool that is not idempotent is about to be asked: after this, silence means that the outcome is unknown."""

    type: Literal["call_started"] = "call_started"
    call_id: str
    tool: str


class ToolProgress(Message):
    """A tool says how far it is."""

    type: Literal["tool_progress"] = "tool_progress"
    call_id: str
    tool: str
    message: str = ""
    fraction: float | None = None


class ArtifactChunk(Message):
    """A piece of an artifact while it grows. `seq` is gapless per call and stream."""

    type: Literal["artifact_chunk"] = "artifact_chunk"
    stream_id: str
    seq: int
    chunk: Any
    done: bool = False
    artifact_type: str | None = None
    tool: str
    call_id: str


class ArtifactStored(Message):
    """A large part of a tool's result was stored as an artifact; fetch it from the gateway.

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


class UnknownEvent(Message):
    """An event of a newer version."""

    model_config = ConfigDict(extra="allow")

    type: str


Terminal = Done | Error | Cancelled
TERMINAL = frozenset({"done", "error", "cancelled", "deleted"})
"""Types of events after which nothing follows; of a deleted run another one came before it."""

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
    """Chooses by the type's name, which pydantic does without a call back into Python: records are parsed in two thirds of the time.

    The schema is one list of alternatives, as its readers expect it.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        union: Any = handler(source)
        # The labels are what a complaint says in place of a list of all types.
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
