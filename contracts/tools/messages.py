"""The messages between a tool, in any language, and tool_runner, and about its calls, between planner and tool_runner.

A tool answers a request on `tool.<name>` with any number of replies to the request's inbox, the last of which is a
`result`, a `failure` or `declined`. The header `Runwire-Reply` names the kind; a reply without it is a bare result. The
body of `part` is raw bytes, of `content` UTF-8 text, of `result` any JSON, of the others the models below.

A result with the members `artifact_id`, `artifact` and `_metadata` has the canonical form: `artifact` is stored, and
the model is shown a preview of it.

A direct call is a request of the planner to one instance of tool_runner, without the stored queue CALLS. The `step` or
`called` record that announces the call names the instance (`PlannedCall.direct`) and is the intent of the call. The
request is a `CallRequested` with `start_by`. The header `Runwire-Direct` of the reply says what became of it.

An operator checks a tool with `CheckTool` on `check.tool`. Until the answer, a `ToolChecked` of the kind `result`, the
replies are of the kind `heartbeat`. A request that cannot be read is answered with a `Fault` of the kind `failure`.
"""

import hashlib
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from ..artifacts import ArtifactRef, JsonType
from ..runs.pauses import ApprovalRule, CallApproval, PauseAnswer, PauseDefault, PauseReason
from ..wire.base import Message, is_absent

REPLY_HEADER = "Runwire-Reply"
PARTS_HEADER = "Runwire-Parts"
SPEC_METADATA = "runwire.spec"
"""The one key of a micro endpoint's metadata; its value is a ToolSpec as JSON."""

StreamId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
        description="up to 128 letters, digits, `_`, `-` and `.`, the last two not first",
    ),
]
"""The name of an artifact stream within its call. It appears in events, payloads and file names."""
_WORD = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
ArtifactType = Annotated[
    str,
    Field(
        pattern=rf"^{_WORD}(/{_WORD}(; ?[A-Za-z0-9-]{{1,32}}=[A-Za-z0-9._-]{{1,64}})?)?$",
        description="a name such as `echarts`, or a media type such as `audio/wav`",
    ),
]
"""The kind of an artifact, for programs that show it."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{24}$", description="24 hexadecimal digits that name a ToolSpec")]
MAX_ACCEPTED_SPECS = 64
"""Specifications of one tool that are accepted at the same time. Accepting one more removes the oldest."""

ReplyKind = Literal[
    "heartbeat", "progress", "artifact_chunk", "content", "wanted", "part", "result", "failure", "declined", "pause"
]


class ToolSpec(Message):
    """The specification of a tool, as it announces it."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object"}, description="JSON Schema of `args`; local references only"
    )
    output_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema of the result; None: anything")
    idempotent: bool = Field(default=False, description="True: a call may be repeated under the same idempotency key")
    side_effects: Literal["none", "read", "write", "external"] = "none"
    timeout_s: float = Field(
        default=30.0, gt=0, le=86400, description="longest time without a reply, in seconds; every reply restarts it"
    )
    heartbeat_s: float | None = Field(
        default=None,
        gt=0,
        description="each call sends a reply at least this often, from its start, and `.status` is answered",
    )
    concurrency: int = Field(default=64, ge=1, le=10_000, description="calls at once over all instances")
    tags: list[str] = Field(default_factory=list)
    requires_approval: bool = Field(default=False, description="no call without a person's approval")
    hidden: bool = Field(
        default=False,
        exclude_if=is_absent,
        description="models and plans are not offered it; `POST /v1/tools/{name}/call` takes the right `apply`",
    )

    def digest(self) -> str:
        """24 hexadecimal digits that identify this specification."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:24]


class LiveTool(ToolSpec):
    """A tool in the catalogue."""

    instances: int = Field(default=0, description="processes that announce it now; 0: it stands in the tools file")


class RefusedTool(Message):
    """A tool with an announcement that is not offered: it cannot be used, or has not been accepted."""

    name: str
    reason: str = Field(description="why, and what can be done about it")
    digests: list[str] = Field(
        default_factory=list,
        description="digests of the specifications that wait for `runwire tools accept`, the newest version first;"
        " empty for one that cannot be used",
    )


class AcceptedSpecs(Message):
    """The specifications of a tool that may be offered: the first one seen, and those that an operator has accepted."""

    digests: list[Digest] = Field(max_length=MAX_ACCEPTED_SPECS, description="the one that was accepted last is last")


class ToolCall(Message):
    """A request on `tool.<name>`.

    A repeated `call_key` (run and call) joins the call in flight or gets its finished result.
    """

    call_id: str
    run_id: str
    tenant: str = "default"
    tool: str
    args: dict[str, Any]
    idempotency_key: str = Field(description="the same for every repetition of this call; unique over all runs")
    deadline_at: int = Field(description="Unix time in ms; the call ends then")
    start_by: int | None = Field(
        default=None,
        description="Unix time in ms; do not begin after it unless a reply was sent before: without one the caller "
        "sends the call to another instance then",
    )
    sent_at: int | None = Field(
        default=None,
        description="Unix time in ms, by the clock of `deadline_at` and `start_by`, which may not be that of the tool",
    )
    understands_declined: bool = Field(
        default=False, description="the caller sends the call again after the reply `declined`"
    )
    round: int = Field(default=0, description="how many pauses this call has had")
    answers: list[PauseAnswer] = Field(default_factory=list, description="to the pauses so far, in their order")
    state: dict[str, Any] = Field(default_factory=dict, description="what the reply `pause` of the last round kept")
    understands_pause: bool = Field(default=False, description="the caller accepts the reply `pause`")
    understands_content: bool = Field(default=False, description="the caller accepts the reply `content`")
    session_id: str | None = None
    request_id: str | None = Field(default=None, description="the caller's id of the request for the run, or the run's")
    trace_id: str | None = None
    user_id: str | None = None
    context: dict[str, Any] = Field(
        default_factory=dict, description="the caller's `tool_context`; never shown to the model"
    )


class CallQuestion(Message):
    """A request on `tool.<name>.status` or `.cancel`, to all instances.

    The instance that works on this round of the call replies; the others do not.
    """

    idempotency_key: str
    round: int = 0


class ResultRejected(Message):
    """A message on `tool.<name>.rejected`, to all instances: a result was not accepted, and its call has failed.

    The instance that sent the result writes it to its log, for the author of the tool. Nobody replies.
    """

    idempotency_key: str
    round: int = 0
    code: str = Field(description="`invalid_result`, `result_too_large` or `invalid_pause`")
    reason: str = Field(description="what is wrong with the result or the pause; it does not quote it")


class Heartbeat(Message):
    """A sign that the call is in progress.

    A tool that sets `every_s` promises the next heartbeat within that time, so that a crash is detected early.
    """

    every_s: float | None = Field(default=None, gt=0)
    instance: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="id of the NATS micro service that sends this and answers `$SRV.PING.<name>.<id>`; after a missed"
        " heartbeat the ping shows whether it is still connected",
    )


class Progress(Message):
    """Progress of a call: a text for people, and `fraction` from 0 to 1."""

    message: str = ""
    fraction: float | None = Field(default=None, ge=0, le=1)


class ArtifactPiece(Message):
    """A piece of an artifact while it grows. `seq` counts from 0 without gaps, per call and stream."""

    stream_id: StreamId
    seq: int = Field(ge=0)
    chunk: Any
    done: bool = False
    artifact_type: ArtifactType | None = None


class ToolFailure(Message):
    """The tool ends the call without a result.

    `reason` is shown to the model, so it should say what to do differently.
    """

    reason: str
    code: str = "tool_error"
    retryable: bool = False


class Declined(Message):
    """The instance has not started the call and will not, so that it may be sent again, to any instance.

    `busy`: it runs `concurrency` calls already. `late`: it received the request after `start_by`, or after its process
    was stopped for a while.
    """

    reason: Literal["busy", "late"] = "busy"


class PauseReply(Message):
    """The tool ends this round of the call and asks a person. The call comes again, with the answer.

    The function runs from its beginning then, so what must not run twice belongs into `state`.
    """

    number: int = Field(ge=0, description="counts the pauses of the call from 0")
    reason: PauseReason = "input"
    title: str = Field(default="", max_length=200)
    payload: Any = None
    input_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema of the answer's `input`")
    state: dict[str, Any] = Field(default_factory=dict, description="at most 32 KiB as JSON")
    expires_in_s: float | None = Field(default=None, gt=0, description="null: 7 days; at most 365")
    default: PauseDefault = "reject"
    default_answer: Any = None


class CallRequested(Message):
    """A call in the stream CALLS, or a direct one (`direct`): planner to tool_runner."""

    v: Literal[1] = 1
    call_id: str
    run_id: str
    tenant: str
    tool: str
    args: dict[str, Any]
    spec: str = Field(description="digest of the ToolSpec that the run uses")
    step: int
    resolved: bool = Field(
        default=False, description="arguments hold values of earlier results: complaints about them quote none"
    )
    deadline_at: int | None = Field(default=None, description="the run's deadline, Unix ms")
    again: bool = Field(default=False, description="it may have been sent before: check whether it has an outcome")
    start_by: int | None = Field(
        default=None,
        description="Unix time in ms after which another handling may have sent the call. tool_runner declines a "
        "direct call that comes later, and treats one that CALLS stored later as `again`",
    )
    readable: bool = Field(
        default=False,
        description="of `read_artifact`: the artifact is an observation of this run that the model may read",
    )
    round: int = 0
    answers: list[PauseAnswer] = Field(default_factory=list)
    state: dict[str, Any] = Field(default_factory=dict)
    approval: CallApproval | None = Field(default=None, description="null: nobody was asked")
    approval_rules: list[ApprovalRule] = Field(
        default_factory=list, description="the run's rules that name the tool; tool_runner applies them again"
    )
    session_id: str | None = None
    trace_id: str | None = None
    request_id: str | None = Field(default=None, description="null: an earlier planner sent it; use the run's id")
    user_id: str | None = None
    context: dict[str, Any] = Field(default_factory=dict)


class ReadRequested(Message):
    """A call of a tool that changes nothing: gateway or planner to tool_runner, for no run. Nothing is stored.

    The tool says so by `side_effects` (`none` or `read`) and `idempotent`, and needs no approval. The reply is a
    `CallFinished` without artifacts: what a model would be shown.
    """

    tenant: str
    tool: str
    args: dict[str, Any]
    user_id: str | None = None
    request_id: str | None = None
    trace_id: str | None = None


DIRECT_HEADER = "Runwire-Direct"
DirectReply = Literal["begun", "finished", "declined", "unfinished"]
"""`begun`: the tool is called next, and another reply follows. `finished`: the body is the CallFinished.
`declined`: the tool was not called for this request and will not be; send the call to CALLS. `unfinished`: the tool was
called and has paused the call or has not ended in time, or may have been called; send it to CALLS as one that may have
begun."""


class RunnerAnnouncement(Message):
    """An instance of tool_runner takes direct calls. Repeated every second."""

    instance: str
    leaving: bool = Field(default=False, description="it takes none: it is starting or stopping")


class ReceivedQuestion(Message):
    """Whether an instance of tool_runner has received a direct call. If not, it declines the call from then on."""

    idempotency_key: str = Field(description="of a later round than the first: `names.round_key`")
    age_s: float = Field(description="seconds since the record that announces the call")


class ReceivedAnswer(Message):
    """The answer: false only if the call was certainly not received. It will be declined if it comes."""

    received: bool


MAX_OWN_ID_CHARACTERS = 200
"""Longest id that a tool gives its artifact."""


class ToolResponseMetadata(Message):
    """`_metadata` of a tool's result: for what and by whom it was made."""

    context_id: str = Field(description="the session of the run; without one, the run")
    request_id: str = Field(description="the id that the caller gave the request; without one, the run")
    trace_id: str | None = None
    user_id: str | None = None
    tool_name: str
    executed_at: str = Field(
        description="UTC, ISO 8601 with Z", validation_alias=AliasChoices("executed_at", "timestamp")
    )
    session_id: str | None = Field(default=None, exclude_if=is_absent)
    task_id: str | None = Field(default=None, exclude_if=is_absent)
    agent_name: str | None = Field(default=None, exclude_if=is_absent)
    skill_id: str | None = Field(default=None, exclude_if=is_absent)
    skill_name: str | None = Field(default=None, exclude_if=is_absent)
    execution_id: str | None = Field(default=None, exclude_if=is_absent)


class ArtifactPreview(Message):
    """A bounded view of an artifact for the model, without what the tool's schema hides from it."""

    json_type: JsonType
    size: int = Field(description="bytes, as it is stored")
    counts: dict[str, int] = Field(
        default_factory=dict, description="dotted path -> number of items of a list, or of members of the object itself"
    )
    head: str = Field(description="the beginning of its JSON, or of its text")


class RespondedArtifact(Message):
    """The artifact of a result in the standard form."""

    artifact_id: str = Field(description="the id that the tool gave it, any text")
    ref: ArtifactRef | None = Field(default=None, description="where it is stored; null: in `artifacts` of the outcome")
    fingerprint: str = Field(description="tool name and digest of the arguments of its call")
    artifact_type: str | None = None
    skill_id: str | None = None
    skill_name: str | None = None
    preview: ArtifactPreview | None = Field(default=None, description="null: the tool's schema hides all of it")


class CheckTool(Message):
    """Check what a tool announces, and with `args` one real call of it, whose result is not stored."""

    tool: str
    args: dict[str, Any] | None = Field(default=None, description="of the call; null: the tool is not called")
    context: dict[str, Any] = Field(default_factory=dict, description="the `tool_context` of the call")
    confirmed: bool = Field(default=False, description="call it also if it requires approval or has side effects")
    standard: bool = Field(default=False, description="judge its results as canonical ones, also if it declares none")


class Finding(Message):
    """One line of a checklist."""

    name: str = Field(description="what was checked, such as `output_schema`")
    status: Literal["ok", "warning", "failed"]
    finding: str
    mend: str = Field(default="", description="what to do about it")


class ToolChecked(Message):
    """The checklist of a tool."""

    tool: str
    digest: str | None = Field(default=None, description="of the specification that was checked; null: there is none")
    findings: list[Finding]
