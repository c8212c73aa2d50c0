"""The events of a run: the union that the gateway streams, and the events of the run as a whole.

Events on the run's log are facts and decide its state. Events on its stream (tokens, progress) may expire. Listeners
get both. An event whose type this version does not know is an `UnknownEvent`: it is passed on and changes nothing.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Discriminator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler

from ..artifacts import ImageRef, VisionContextPolicy
from ..sessions.tasks import TaskPolicy
from ..wire.base import Message, is_absent, of_no_type_in
from .pages import PageView, PayloadProposed
from .pauses import ApprovalRule, PauseDecision, PauseDefault, PauseReason, PauseSource, TasksPaused, Yielded
from .payload import FinalPayload, Reason, Usage
from .requests import DEFAULT_STRATEGY, Memory, RequestedEffort, RunLimits, RunRequested
from .step_events import (
    ArtifactChunk,
    ArtifactStored,
    Asked,
    AskedCause,
    BlockStarted,
    Called,
    CallStarted,
    Chunk,
    Compacted,
    ControlAnswered,
    ModelFailed,
    Observed,
    PlannedCall,
    Redelivered,
    Repaired,
    Step,
    StepStatus,
    Thinking,
    ToolProgress,
    Triaged,
)

__all__ = [
    "KNOWN",
    "TERMINAL",
    "ActionFormat",
    "ActionTransport",
    "ArtifactChunk",
    "ArtifactStored",
    "Asked",
    "AskedCause",
    "Attached",
    "BlockStarted",
    "CallStarted",
    "Called",
    "Cancelled",
    "Chunk",
    "Compacted",
    "ControlAnswered",
    "Deleted",
    "Done",
    "Error",
    "FollowupMode",
    "InputAdded",
    "KnownEvent",
    "ModelFailed",
    "Observed",
    "Paused",
    "PayloadProposed",
    "PlannedCall",
    "Queued",
    "Redelivered",
    "Reflection",
    "Repaired",
    "Resumed",
    "RunEvent",
    "RunStarted",
    "Step",
    "StepStatus",
    "Stopping",
    "TaskSettled",
    "TasksPaused",
    "Terminal",
    "Thinking",
    "ToolProgress",
    "ToppedUp",
    "Triaged",
    "UnknownEvent",
    "Yielded",
]

ActionFormat = Literal["auto", "unified", "legacy"]
ActionTransport = Literal["json", "tools"]
FollowupMode = Literal["end", "pause"]
"""`end`: the run ends, and the user asks in a new one. `pause`: it waits for the user's answer."""


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
    strategy: str = Field(
        default=DEFAULT_STRATEGY,
        exclude_if=lambda name: name == DEFAULT_STRATEGY,
        description="how it plans, until its end; absent: react",
    )
    tools: dict[str, str] = Field(
        default_factory=dict, description="tool name -> digest of the specification, which the run uses until its end"
    )
    has_tool_context: bool = Field(
        default=False, description="the request's `tool_context` is stored apart from the log, for tools only"
    )
    approvals: list[str] = Field(
        default_factory=list, description="tools that require approval, by their own specification"
    )
    approval_rules: list[ApprovalRule] = Field(
        default_factory=list, description="of the agent: which calls need approval beside those of `approvals`"
    )
    conversation_seq: int | None = Field(
        default=None,
        description="sequence of the session's record up to which the run knows the conversation; null: no session",
    )
    memory: Memory | None = Field(
        default=None, description="how much of that conversation the model is shown; null: the run has none"
    )
    followup: FollowupMode = Field(default="end", description="what an answer with `requires_followup` does")
    tasks: TaskPolicy | None = Field(default=None, description="null: the run may not spawn background tasks")
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
        default="auto", description="the form of decisions that the prompt asks for, and the forms that are accepted"
    )
    action_transport: ActionTransport = Field(
        default="json", description="decisions as JSON in the reply, or as native tool calls"
    )
    images: list[ImageRef] = Field(default_factory=list, description="images of the request that the model is shown")
    vision_context: VisionContextPolicy | None = Field(
        default=None, description="which images of tools the model is shown; null: none"
    )
    warnings: list[str] = Field(default_factory=list)
    page_view: PageView | None = Field(
        default=None, exclude_if=is_absent, description="of a chat turn with a page: all that its prompt needs of it"
    )
    deadline_at: int | None = Field(default=None, description="Unix ms")


class Queued(Message):
    """The run waits for its turn in its session. `request` is without `tool_context`, which is stored elsewhere."""

    type: Literal["queued"] = "queued"
    request: RunRequested
    has_tool_context: bool = False
    queue_until: int = Field(description="Unix ms: the run ends with `queue_timeout` if it has not begun by then")


class Paused(Message):
    """The run, or one of its calls, waits for a person or program until `until`.

    `reason` budget: the run waits for a top-up of the named budget, and ends at `until` if nobody acts. All others have
    a `pause_id`; there may be several, each for itself. A record with the same `pause_id` and a higher `revision`
    replaces the pause, as after an edit that must be approved again. At `until` the `default` takes effect.
    """

    type: Literal["paused"] = "paused"
    reason: PauseReason = "budget"
    budget: str = Field(default="", description="the budget that is spent, with its limit")
    until: int = Field(description="Unix ms")
    pause_id: str | None = None
    source: PauseSource = "planner"
    revision: int = 1
    title: str = ""
    payload: Any = Field(default=None, description="for the person who decides; above 32 KiB an ArtifactRef")
    input_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema of the expected input")
    default: PauseDefault = "reject"
    default_answer: Any = None
    call_id: str | None = Field(default=None, description="the call that waits")
    tool: str | None = None
    spec: str | None = Field(default=None, description="of an approval: digest of the specification of its tool")
    arguments: dict[str, Any] | None = Field(default=None, description="of the call, artifacts as references")
    step: int | None = None
    rule: str | None = Field(default=None, description="the approval rule that asks")
    number: int = Field(default=0, description="counts the pauses of the call from 0")
    round: int = Field(default=0, description="the round of the call that the tool's pause has ended")
    state: dict[str, Any] = Field(default_factory=dict, description="`ctx.state` of the tool, for the next round")
    digest: str = ""
    token: str = Field(default="", description="names pause, revision and digest; a decision repeats it")
    id: str | None = Field(default=None, description="of the request whose edit waits for this further approval")
    request_sha256: str = Field(default="", description="of that request")
    by: str = Field(default="", description="of that request: the id of the API key")


class ToppedUp(Message):
    """The run may spend more. `limits` are its total limits from now on; `by` is the id of the request."""

    type: Literal["topped_up"] = "topped_up"
    limits: RunLimits
    deadline_at: int | None = Field(default=None, description="Unix ms")
    by: str


class Resumed(Message):
    """A pause is over, or, without a `pause_id`, the run's wait for a budget or for its turn (`by`: `session`)."""

    type: Literal["resumed"] = "resumed"
    pause_id: str | None = None
    decision: PauseDecision | None = None
    id: str | None = Field(default=None, description="of the request that decided; null: it was not a request")
    request_sha256: str = Field(default="", description="of that request, to detect a reused idempotency key")
    by: str = Field(default="", description="`timer`, `session`, or the id of the API key; empty: a keyless caller")
    user_id: str | None = None
    decided_at: int | None = Field(default=None, exclude_if=is_absent, description="of a pause, Unix ms")
    note: str = ""
    arguments: dict[str, Any] | None = Field(default=None, description="of an edit: the arguments from now on")
    input: Any = Field(default=None, description="of an answer")
    images: list[ImageRef] = Field(default_factory=list, description="of an answer: shown to the model from now on")
    images_remove: list[str] = Field(default_factory=list, description="images that the model is no longer shown")
    digest: str = Field(default="", description="of an approval: of the call that was approved")
    deadline_at: int | None = Field(default=None, description="Unix ms; the run's deadline from now on")
    session_seq: int | None = Field(default=None, description="by `session`: of its record that gave the turn again")


class InputAdded(Message):
    """A person adds to a run. The model receives it with its next decision."""

    type: Literal["input_added"] = "input_added"
    id: str
    text: str = ""
    images: list[ImageRef] = Field(default_factory=list)
    redirect: bool = Field(default=False, description="it replaces the question, and ends the model call in flight")
    run: str | None = Field(default=None, description="the run whose request brought it (`on_busy: steer`)")
    by: str = Field(default="", description="the id of the API key; empty: a keyless caller")


class TaskSettled(Message):
    """A task that the run spawned has ended. What was set aside for it and not spent is the run's again."""

    type: Literal["task_settled"] = "task_settled"
    call_id: str
    task_id: str
    spent: Usage


class Attached(Message):
    """A session continues from this run, which had none: the run tells it how it ends."""

    type: Literal["attached"] = "attached"
    session_id: str


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
    Queued
    | RunStarted
    | Attached
    | Triaged
    | Asked
    | Step
    | Called
    | Redelivered
    | Observed
    | Repaired
    | ModelFailed
    | Compacted
    | PayloadProposed
    | Paused
    | ToppedUp
    | Resumed
    | InputAdded
    | TaskSettled
    | TasksPaused
    | Yielded
    | Stopping
    | Done
    | Error
    | Cancelled
    | Deleted
    | Chunk
    | Thinking
    | BlockStarted
    | CallStarted
    | ToolProgress
    | ArtifactChunk
    | ArtifactStored
    | ControlAnswered,
    Discriminator("type"),
]
KNOWN: tuple[type[Message], ...] = get_args(get_args(KnownEvent)[0])


class _KnownFirst:
    """Chooses the class by the type's name.

    pydantic does that without a call back into Python, so records are parsed in two thirds of the time. The schema is
    one list of alternatives, as its readers expect it. A known event also fits the unknown one, so it is no `oneOf`.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        union: Any = handler(source)
        # An error message contains the labels instead of a list of all types.
        labels = ("known", "unknown")
        return {**union, "mode": "left_to_right", "choices": list(zip(union["choices"], labels, strict=True))}

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> Any:
        known, unknown = handler(schema)["anyOf"]
        return {"anyOf": [*known["oneOf"], unknown]}


RunEvent = Annotated[KnownEvent | Annotated[UnknownEvent, of_no_type_in(KNOWN)], _KnownFirst()]
