"""Events of a run's steps: facts on its log, and on its stream what people watch while it happens.

Facts are what the model was asked, what it decided, what tools answered. The others expire, and decide nothing but who
calls a tool (`CallStarted`, which stays).
"""

from typing import Any, Literal

from pydantic import Field

from ..artifacts import ArtifactRef
from ..sessions.tasks import Reservation
from ..tools.messages import RespondedArtifact
from ..wire.base import Message, is_absent
from ..wire.faults import Fault
from .decisions import CallStatus, Join, Plan, PlanError
from .payload import Source, TaskFindings, Usage
from .requests import Effort

StepStatus = Literal["started", "succeeded", "failed", "skipped", "invalid"]
AskedCause = Literal["turn", "lost", "repair", "provider", "compacted", "restated", "resumed"]


class Triaged(Message):
    """A triage, one cheap model call per run, chose the reasoning effort, and the model if several are named."""

    type: Literal["triaged"] = "triaged"
    effort: Effort
    model: str | None = None
    usage: Usage | None = None


class Asked(Message):
    """A request to the model is about to be sent.

    `by` is the message that owns the model call, as `<stream>:<sequence>`; `holder` is the attempt token, the id of the
    handling that streams the reply. Another handling of the same message may call the model again; a handling of any
    other message must not.
    """

    type: Literal["asked"] = "asked"
    turn: int
    attempt: int
    by: str
    holder: str
    model: str | None = Field(
        default=None,
        description="null: the following `triaged` names the model",
    )
    cause: AskedCause = "turn"
    """Why this attempt is made.

    `lost`: the process of the previous attempt died. `repair`: the reply was invalid, see the `repaired` in the same
    record. `provider`: the request failed, see the `model_failed` in the same record. `compacted`: the conversation was
    too long. `restated`: the final answer differs from what was shown of it; it is shown again, without a request to
    the model. `resumed`: the run was paused.
    """
    part: int = Field(default=0, exclude_if=is_absent, description="of a chat turn: the number of the model call")
    unfinished: Usage | None = Field(
        default=None, exclude_if=is_absent, description="of the attempt before, which never ended: estimated"
    )


class PlannedCall(Message):
    """One tool call of a step. `call_id` is unique in its run."""

    call_id: str
    tool: str
    args: dict[str, Any] = Field(default_factory=dict)
    direct: str | None = Field(
        default=None,
        description="the instance of tool_runner that is called directly; this record is then the call's intent",
    )
    round: int = Field(default=0, description="how many pauses of the tool the call has had; each begins a new round")
    set_aside: Reservation | None = Field(default=None, description="of a spawned task: its part of the run's limits")
    resolved: bool = Field(
        default=False,
        exclude_if=is_absent,
        description="arguments hold values of earlier results, which the model may not be shown",
    )


class Opaque(Message):
    """What a provider wants to see again of a reply: fields of its message, and of each of its calls, as they came.

    It is sent back to the same model only, and never shown: the gateway leaves it out.
    """

    model: str
    message: dict[str, Any] = Field(default_factory=dict)
    calls: list[dict[str, Any]] = Field(default_factory=list)


ReplyShape = Literal["unified", "legacy", "native", "foreign", "notation", "plan", "text"]


class ReplyForm(Message):
    """How a model wrote its decision, by which models can be judged.

    `unified`, `legacy`: a JSON action of two or five fields. `foreign`: a JSON call in the form of another framework.
    `native`: native calls. `notation`: calls in a text. `plan`: the JSON of a plan. `text`: a plain answer.
    """

    form: ReplyShape
    rules: list[str] = Field(default_factory=list, description="what was needed to read it, such as `salvaged`")


class Step(Message):
    """One decision of the model: `started` when it is made, another status and `latency_ms` when the step has ended.

    The first event carries the decision. With calls, the latency is measured from the decision to the last outcome;
    without calls, from the first request to the model. `failed`: a call failed, or an answer has no text. `answer` is
    set only if the run continues after an answer.
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
    form: ReplyForm | None = Field(default=None, exclude_if=is_absent, description="how the model wrote the decision")
    opaque: Opaque | None = Field(
        default=None, exclude_if=is_absent, description="for the model that sent it; no listener gets it"
    )
    part: int = Field(default=0, exclude_if=is_absent, description="of a chat turn: the model call that decided this")
    said: str | ArtifactRef = Field(
        default="",
        exclude_if=is_absent,
        description="of a part: the raw text of the model, above 32 KiB a reference. No listener gets it: text to show "
        "is in `chunk` and `done`",
    )
    shown_to: int = Field(
        default=0, exclude_if=is_absent, description="of a part: the length of the message up to its end"
    )
    plan: Plan | None = Field(
        default=None, exclude_if=is_absent, description="of a step `plan` of the strategy `planned`"
    )
    errors: list[PlanError] = Field(
        default_factory=list, exclude_if=is_absent, description="of such a step that is invalid"
    )
    errors_left_out: int = Field(default=0, exclude_if=is_absent, description="how many more errors there are")
    statuses: list[CallStatus] = Field(
        default_factory=list,
        exclude_if=is_absent,
        description="of a step `execute` that has ended: of each call of the plan",
    )
    halt_reason: str | None = Field(
        default=None, exclude_if=is_absent, description="of such a step: why later calls were not executed"
    )
    deadline_at: int | None = Field(
        default=None,
        exclude_if=is_absent,
        description="of a step `execute` that the deadline halted: until when the answer may take, Unix ms",
    )


class Called(Message):
    """Calls that start later than their step: those beyond `max_parallel`, and the join of a plan.

    A call may be announced again: its next round, or without `direct` when another handling has taken it over.
    """

    type: Literal["called"] = "called"
    step: int
    by: str
    calls: list[PlannedCall]
    join: bool = False


class Redelivered(Message):
    """A message was delivered again, and this handling has it now. Earlier ones of it write nothing more."""

    type: Literal["redelivered"] = "redelivered"
    by: str = Field(description="the message")
    holder: str = Field(description="the attempt token of the handling")


class Observed(Message):
    """The outcome of a call. There is one per call. `observation` is the part of the result that the model sees."""

    type: Literal["observed"] = "observed"
    call_id: str
    tool: str
    status: Literal["succeeded", "failed"]
    observation: Any = None
    failure: Fault | None = None
    artifacts: dict[str, Any] = Field(default_factory=dict)
    artifact_types: dict[str, str] = Field(
        default_factory=dict, exclude_if=is_absent, description="dotted path -> type, where one is known"
    )
    sources: list[Source] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list, description="parts of the result that were left out")
    latency_ms: int = 0
    content: str | None = Field(
        default=None, exclude_if=is_absent, description="the tool's text for the model, beside its result"
    )
    responded: RespondedArtifact | None = Field(
        default=None,
        exclude_if=is_absent,
        description="of a result in the standard form (`tool_responses`): its artifact",
    )
    of_tasks: TaskFindings | None = Field(default=None, exclude_if=is_absent, description="of tasks waited for")


class Repaired(Message):
    """A reply of the model could not be used. The model gets the reason and is called again.

    `kind` repair: the reply was not a valid action. `answer`: a final response without its text, which alone is
    requested; `args` holds its other fields. `revision`: the critique rated the answer too low.
    """

    type: Literal["repaired"] = "repaired"
    turn: int
    attempt: int
    reason: str
    kind: Literal["repair", "answer", "revision"] = "repair"
    args: dict[str, Any] | None = None
    reply: str = Field(default="", description="the model's reply, shortened")
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
    retry_at: int = Field(description="Unix ms: the end of the wait")
    usage: Usage | None = Field(default=None, description="of the failed request")


class Compacted(Message):
    """The conversation was too long for the model. From now on lines of older messages are cut to `line_characters`."""

    type: Literal["compacted"] = "compacted"
    turn: int
    cause: Literal["overflow", "threshold"]
    line_characters: int


class Chunk(Message):
    """Characters of the answer, in reading order.

    A listener drops of what it has the text from `offset` on, then appends `text`. `seq` counts from 0 in each attempt.
    """

    type: Literal["chunk"] = "chunk"
    stream_id: str = "answer"
    seq: int
    offset: int = Field(default=0, description="place of the first character in the answer, in Unicode code points")
    text: str
    done: bool = False
    channel: Literal["answer"] = "answer"
    phase: Literal["answer"] = "answer"
    action_seq: int
    part: int = Field(default=0, exclude_if=is_absent, description="of a chat turn: the number of the model call")
    attempt: int


class Thinking(Message):
    """Native reasoning of the model, in reading order."""

    type: Literal["thinking"] = "thinking"
    stream_id: str = "thinking"
    seq: int
    offset: int = Field(default=0, description="place of the first character in the reasoning, in Unicode code points")
    text: str
    done: bool = False
    channel: Literal["thinking"] = "thinking"
    phase: Literal["thinking"] = "thinking"
    action_seq: int
    part: int = Field(default=0, exclude_if=is_absent, description="of a chat turn: the number of the model call")
    attempt: int


class BlockStarted(Message):
    """A hint that the model began to write a hidden block, such as a proposal. It is over when the run has ended."""

    type: Literal["block_started"] = "block_started"
    name: str = Field(description="the marker, such as `DATA_PROPOSAL`")
    part: int = 0


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
