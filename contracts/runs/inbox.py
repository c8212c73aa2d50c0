"""Messages to a run: results on its inbox subject; timers and people's requests on its control subject.

Timers of sessions and schedules are here too, and the request for a prompt, which a planner renders from the log.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from ..artifacts import ImageRef
from ..tools.messages import RespondedArtifact
from ..wire.base import Message, is_absent
from ..wire.faults import Fault
from .pauses import PauseDecision, PauseDefault, PauseReason, TasksPaused
from .payload import Source, TaskFindings, Usage

TimerName = Literal["deadline", "pause", "retry", "queue"]
"""The timers of a run. Those of sessions and schedules have other names."""


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
    artifact_types: dict[str, str] = Field(
        default_factory=dict, exclude_if=is_absent, description="dotted path -> type, where one is known"
    )
    sources: list[Source] = Field(default_factory=list)
    warnings: list[str] = Field(
        default_factory=list, description="parts of the result that were left out, for the run's payload"
    )
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


class TimerFired(Message):
    """A timer of the run has fired. It arrives on `control`."""

    v: Literal[1] = 1
    kind: Literal["timer"] = "timer"
    timer: TimerName
    at: int | None = Field(
        default=None, description="the time that it was set for, Unix ms; it is ignored if the timer was set again"
    )


class CancelRequested(Message):
    """A request to end the run now."""

    v: Literal[1] = 1
    kind: Literal["cancel"] = "cancel"
    reason: str = ""
    session_id: str | None = Field(
        default=None, description="of a cancel by a session: it is notified of the end of a run without a log too"
    )


class TopUpRequested(Message):
    """A request to let the run spend more. `limits` are fields of RunLimits, counted from now on.

    Each `id` is applied once.
    """

    v: Literal[1] = 1
    kind: Literal["top_up"] = "top_up"
    id: str
    limits: dict[str, Any]


class RunResumed(Message):
    """A run may continue. It is sent to the inbox, since the control consumer never calls models."""

    v: Literal[1] = 1
    kind: Literal["resumed"] = "resumed"
    at: int = Field(default=0, description="Unix ms: the time of a timer that is the reason, since clocks differ")


class CallPaused(Message):
    """A tool has paused its call: this round is over, and the next one brings the answer."""

    v: Literal[1] = 1
    kind: Literal["call_paused"] = "call_paused"
    call_id: str
    tool: str
    round: int = Field(description="the round that is over")
    number: int = Field(ge=0, description="counts the pauses of the call from 0")
    reason: PauseReason
    title: str = ""
    payload: Any = None
    input_schema: dict[str, Any] | None = None
    state: dict[str, Any] = Field(default_factory=dict)
    expires_in_s: float
    default: PauseDefault = "reject"
    default_answer: Any = None


class RunBegins(Message):
    """It is the turn of a run that was queued in its session."""

    v: Literal[1] = 1
    kind: Literal["begin"] = "begin"
    session_seq: int = Field(description="sequence of the session's record up to which the run knows the conversation")


class RunMerged(Message):
    """The text of a queued run became an input of another run, so it ends without an answer of its own."""

    v: Literal[1] = 1
    kind: Literal["merged"] = "merged"
    into: str


class RunRefused(Message):
    """The session refuses a run that was queued, or was accepted and may not run."""

    v: Literal[1] = 1
    kind: Literal["refused"] = "refused"
    fault: Fault


class SessionAttached(Message):
    """A request continues from this run, which has no session: it is to tell the session how it ends."""

    v: Literal[1] = 1
    kind: Literal["attach"] = "attach"
    session_id: str


class InputRequested(Message):
    """A person adds to a run. Each `id` counts once.

    If the run waits for a person, the text answers its `input` pauses or rejects its open approvals.
    """

    v: Literal[1] = 1
    kind: Literal["input"] = "input"
    id: str
    text: str = ""
    images: list[ImageRef] = Field(default_factory=list)
    redirect: bool = False
    run: str | None = Field(default=None, description="the run whose request brought it; its session is notified")
    into: str | None = Field(default=None, description="of such an input: the run that it is sent to")
    session_id: str | None = Field(default=None, description="of such an input: the session that is notified")
    by: str = ""
    user_id: str | None = None


class ResumeRequested(Message):
    """A person's decision about a pause. Each `id` counts once."""

    v: Literal[1] = 1
    kind: Literal["resume"] = "resume"
    id: str
    request_sha256: str = ""
    pause_id: str
    token: str
    decision: PauseDecision
    args: dict[str, Any] | None = None
    input: Any = None
    images: list[ImageRef] = Field(default_factory=list)
    images_remove: list[str] = Field(default_factory=list)
    note: str = ""
    by: str = Field(default="", description="the id of the API key; empty: a keyless caller")
    user_id: str | None = None


class RunTaskSettled(Message):
    """A task of the run ended: what was set aside for it and not spent is the run's again."""

    v: Literal[1] = 1
    kind: Literal["task_settled"] = "task_settled"
    call_id: str
    task_id: str
    spent: Usage


class RunTasksPaused(Message):
    """Tasks that a call of the run waits for need something of people, or do not any more."""

    v: Literal[1] = 1
    kind: Literal["tasks_paused"] = "tasks_paused"
    paused: TasksPaused


class RunYields(Message):
    """The run is a report, and a user's run has its turn: it waits until a later `begin`."""

    v: Literal[1] = 1
    kind: Literal["yields"] = "yields"
    session_seq: int


class GroupDue(Message):
    """A timer of a session has fired. Its subject names the session where others name a run."""

    v: Literal[1] = 1
    kind: Literal["group_due"] = "group_due"
    group_id: str
    what: Literal["group", "waiter"]


class ScheduleSet(Message):
    """A schedule was made or deleted: its timer is set or removed. The subject names the schedule in place of a run."""

    v: Literal[1] = 1
    kind: Literal["schedule_set"] = "schedule_set"


class ScheduleDue(Message):
    """The timer of a schedule has fired. Its subject names the schedule where others name a run."""

    v: Literal[1] = 1
    kind: Literal["schedule_due"] = "schedule_due"
    at: int = Field(description="the fire time, Unix ms")


_Message = (
    CallFinished
    | CallPaused
    | TimerFired
    | CancelRequested
    | TopUpRequested
    | RunResumed
    | RunBegins
    | RunMerged
    | RunRefused
    | SessionAttached
    | InputRequested
    | ResumeRequested
    | RunTaskSettled
    | RunTasksPaused
    | RunYields
    | GroupDue
    | ScheduleSet
    | ScheduleDue
)
InboxMessage = Annotated[_Message, Field(discriminator="kind")]
INBOX_MESSAGE: TypeAdapter[_Message] = TypeAdapter(InboxMessage)


class PromptRequested(Message):
    """Which model call of which run: as its event `asked` names it."""

    tenant: str
    run_id: str
    turn: int
    part: int = 0
    attempt: int


class Prompt(Message):
    """A request to a model as a planner renders it now. Images are references, as they are in the log."""

    model: str
    messages: list[dict[str, Any]] = Field(description="in the shape of a chat completion")
    tools: list[dict[str, Any]] | None = Field(default=None, description="functions that the model may call")
    tool_choice: str | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    tokens: int = Field(description="estimated")
    rendered_by: str = Field(description="version of this planner")
    asked_by: str = Field(description="version of the planner that asked the model; empty: it did not say")


class PromptRendered(Message):
    """The answer of a planner: the prompt, or why there is none."""

    prompt: Prompt | None = None
    problem: Literal["no_such_call", "too_large"] | None = None
