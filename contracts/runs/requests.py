"""Requests for runs, and the status of a run."""

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from ..artifacts import ImageInput, ImageRef, VisionMode
from ..wire.base import HttpInput, Message, is_absent
from .pages import Page
from .pauses import OpenPause, PauseDecision
from .payload import FinalPayload, Reason, TaskFindings, Usage

Effort = Literal["low", "medium", "high"]
"""How much a model reasons before it answers."""
RequestedEffort = Literal["low", "medium", "high", "auto"]
"""The reasoning effort in a request; `auto`: a triage chooses it."""
StrategyName = Literal["react", "planned", "chat"]
DEFAULT_STRATEGY: StrategyName = "react"
OnBusy = Literal["queue", "steer", "reject", "cancel"]
"""What a request does while another run of its session has the turn: wait for it, add its text to it, fail, or end
it."""

RunCause = Literal["user", "summary", "task", "job", "report", "call"]
"""Why a run exists. `summary`: its session has it made. `task`, `job`: another run spawned it. `call`: a person or
program calls one tool. These take no turn. `report`: it tells the user about tasks that have ended, in a turn of its
own."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("holds nothing but white space")
    return text


MODEL_NAME = r"^[^\s\x00-\x1f\x7f]+$"
"""A model's name has neither white space nor control characters."""
SESSION_ID = r"^([^.][\s\S]*|\.[^.][\s\S]*|\.\.[\s\S]+)$"
"""A session's id is any text but `.` and `..`: browsers and clients take these out of an address."""
Question = Annotated[str, AfterValidator(_not_blank)]
"""A question with more than white space."""
_NOT_BLANK = r"[^\s\x1c-\x1f\x85]"
"""The same rule as a pattern for the JSON Schema."""

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class RunLimits(Message):
    """What a run may spend. A budget is checked before spending and may be exceeded by at most one call."""

    max_steps: int = Field(default=16, ge=1, le=10_000, description="decisions of the model, the answer included")
    deadline_s: float | None = Field(
        default=600, gt=0, le=31_536_000, description="seconds from the request to the end; null: none"
    )
    max_tool_calls: int | None = Field(default=None, ge=0, description="calls of tools, joins included")
    max_tokens: int | None = Field(default=None, ge=1, description="prompt and completion tokens of all model calls")
    max_cost_usd: float | None = Field(default=None, ge=0, description="of models whose price is known")
    max_parallel: int = Field(default=8, ge=1, le=256, description="tool calls of one plan at once")
    grace_s: float = Field(
        default=0,
        ge=0,
        le=31_536_000,
        description="how long a run that has spent a budget waits for a top-up before it ends; 0: it does not wait",
    )


class LimitsInput(HttpInput):
    """The limits that a caller sets. The others come from the agent's entry or the deployment."""

    max_steps: int | None = Field(default=None, ge=1, le=10_000)
    deadline_s: float | None = Field(default=None, gt=0, le=31_536_000)
    max_tool_calls: int | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_cost_usd: float | None = Field(default=None, ge=0)
    max_parallel: int | None = Field(default=None, ge=1, le=256)
    grace_s: float | None = Field(default=None, ge=0, le=31_536_000)

    @field_validator("max_steps", "max_tool_calls", "max_tokens", "max_parallel", mode="before")
    @classmethod
    def _whole(cls, number: Any) -> Any:
        """Accept 4.0 for 4: JSON has one kind of number."""
        return int(number) if isinstance(number, float) and number.is_integer() else number


class ConversationMessage(HttpInput):
    """One message of a conversation that the caller keeps itself."""

    role: Literal["user", "assistant"]
    content: str = Field(min_length=1, max_length=100_000)


class MemoryInput(HttpInput):
    """How much of the session's conversation the model is shown. What is left out comes from the agent's entry."""

    recent_turns: int | None = Field(default=None, ge=0, le=200, description="turns that are shown whole")
    max_tokens: int | None = Field(default=None, ge=100, le=200_000, description="of all of the conversation")
    summary_model: str | None = Field(
        default=None,
        max_length=200,
        pattern=MODEL_NAME,
        description="summarises older turns after an answer; null: they are left out, and the model is shown how many",
    )


class Memory(Message):
    """How much of the session's conversation the model of a run is shown."""

    recent_turns: int = Field(default=20, description="the newest turns, which are shown whole")
    max_tokens: int = Field(default=8_000, description="estimated, of turns and summary together")
    summary_model: str | None = Field(default=None, description="summarises older turns after an answer")


class RunInput(HttpInput):
    """The body of `POST /v1/runs`."""

    query: Question = Field(
        min_length=1,
        max_length=200_000,
        description="the question, as the user put it",
        json_schema_extra={"pattern": _NOT_BLANK},
    )
    images: list[ImageInput] = Field(
        default_factory=list, max_length=64, description="shown to the model with the question"
    )
    vision: VisionMode | None = Field(
        default=None,
        description="for a model that takes no images: refuse the run, or run it without them; null: as the agent says",
    )
    agent: str = Field(default="default", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="an entry of the agents file")
    strategy: StrategyName | None = None
    model: str | None = Field(
        default=None,
        max_length=200,
        pattern=MODEL_NAME,
        description="one of the models that the deployment names; null: the agent's model",
    )
    reasoning_effort: RequestedEffort | None = None
    session_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=SESSION_ID,
        description="the conversation; null: the run gets one of its own",
    )
    on_busy: OnBusy = Field(default="queue", description="what happens while another run of the session has the turn")
    on_paused: OnBusy = Field(default="steer", description="the same while that run only waits for a person")
    queue_timeout_s: float = Field(
        default=3600, gt=0, le=31_536_000, description="how long the run may wait for its turn"
    )
    messages: list[ConversationMessage] = Field(
        default_factory=list, max_length=200, description="the conversation so far, in place of a session"
    )
    memory: MemoryInput = Field(default_factory=MemoryInput)
    user_id: str | None = Field(default=None, max_length=200)
    llm_context: dict[str, Any] = Field(default_factory=dict, description="shown to the model")
    tool_context: dict[str, Any] = Field(
        default_factory=dict, description="given to tools, never shown to the model or to listeners"
    )
    tools: list[ToolName] | None = Field(
        default=None, max_length=1000, description="names of the tools that the run may use; null: all"
    )
    limits: LimitsInput = Field(default_factory=LimitsInput)
    page: Page | None = Field(default=None, description="where the user stands; for the strategy `chat`")
    keep_proposal: bool = Field(
        default=False,
        description="the session's pending proposal stays; where there is one, this turn proposes nothing",
    )


class CallInput(HttpInput):
    """The body of `POST /v1/tools/{name}/call`."""

    args: dict[str, Any] = Field(default_factory=dict, description="valid by the tool's `input_schema`")
    agent: str = Field(
        default="default", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="whose tools and rules of approval count"
    )
    user_id: str | None = Field(default=None, max_length=200)
    tool_context: dict[str, Any] = Field(
        default_factory=dict, description="given to the tool, never shown to listeners"
    )
    limits: LimitsInput = Field(default_factory=LimitsInput)


class JobRequested(Message):
    """The one call that a run without a model makes."""

    tool: str
    args: dict[str, Any] = Field(default_factory=dict)


class KeyBudget(Message):
    """What all runs that an API key started on one day, by UTC, may spend together. Null: no limit."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None


class KeySpent(Message):
    """What one run has spent for its API key so far, in the bucket of runs: totals, so a repetition changes nothing."""

    v: Literal[1] = 1
    tokens: int = Field(default=0, description="prompt and completion tokens of its model calls")
    cost_usd: float = Field(default=0.0, description="of models with a known price")


class RunRequested(Message):
    """A request for a run: gateway to planner, once per run."""

    v: Literal[1] = 1
    run_id: str
    tenant: str
    requested_at: int = Field(description="Unix time in ms")
    trace_id: str
    request_id: str | None = Field(
        default=None, exclude_if=is_absent, description="the caller's id of the request; null: the run's id"
    )
    query: str
    images: list[ImageRef] = Field(default_factory=list)
    vision: VisionMode | None = None
    agent: str = "default"
    strategy: str | None = None
    model: str | None = None
    reasoning_effort: RequestedEffort | None = None
    session_id: str | None = None
    on_busy: OnBusy = "queue"
    on_paused: OnBusy = "steer"
    queue_timeout_s: float = 3600
    messages: list[ConversationMessage] = Field(default_factory=list)
    memory: dict[str, Any] = Field(default_factory=dict, description="fields of Memory that the caller set")
    cause: RunCause = "user"
    parent: str | None = Field(default=None, description="of a task: the run that spawned it")
    depth: int = Field(default=0, description="0: no task; 1: a task of such a run; 2: a task of a task")
    hops: int = Field(default=0, description="reports in a row that led to this run")
    job: JobRequested | None = Field(default=None, description="of a job, or with the cause `call`: its one call")
    schedule_id: str | None = Field(default=None, description="the schedule or webhook that started the run")
    key_budget: KeyBudget | None = Field(default=None, description="what all runs of the API key may spend in a day")
    through: str | None = Field(default=None, description="of a summary: the run of the last turn that it covers")
    key_id: str = Field(default="", description="of the API key; empty: a keyless caller")
    is_user_pinned: bool = Field(default=False, description="the key may use sessions of `user_id` only")
    user_id: str | None = None
    llm_context: dict[str, Any] = Field(default_factory=dict)
    tool_context: dict[str, Any] = Field(
        default_factory=dict, description="left out of `run_started`, which listeners get"
    )
    tools: list[str] | None = None
    key_tools: list[str] | None = Field(
        default=None, description="tools that the API key allows; of these the run may use what is there; null: all"
    )
    may_change: str | None = Field(
        default=None,
        exclude_if=is_absent,
        description="the only run that `on_busy` and `on_paused` may steer or cancel, or its own id: none; null: any",
    )
    of_tasks: TaskFindings | None = Field(default=None, exclude_if=is_absent, description="of a report")
    limits: dict[str, Any] = Field(default_factory=dict, description="fields of RunLimits that the caller set")
    page: Page | None = Field(default=None, exclude_if=is_absent)
    role: str = Field(default="", exclude_if=is_absent, description="of the user, by the API key")
    keep_proposal: bool = Field(default=False, exclude_if=is_absent)
    body_sha256: str = Field(default="", description="of the request body, to detect a reused idempotency key")


class KeptContext(Message):
    """The `tool_context` of a run. It is stored apart from the log, where no listener reads."""

    v: Literal[1] = 1
    context: dict[str, Any]


State = Literal["queued", "running", "done", "error", "cancelled"]
Waits = Literal["waiting", "paused"]
"""How a running one waits: something of it for a person; for a top-up only."""
WAITS: tuple[Waits, ...] = get_args(Waits)


class RunStatus(Message):
    """The status of a run."""

    run_id: str
    status: State
    waits: Waits | None = Field(default=None, description="of a running one: for a person, for a top-up")
    agent: str = "default"
    query: str = Field(default="", description="the first 200 characters")
    session_id: str | None = None
    user_id: str | None = None
    cause: RunCause = "user"
    parent: str | None = Field(default=None, description="of a background task: the run that spawned it")
    requested_at: int = Field(description="Unix time in ms")
    started_at: int | None = None
    ended_at: int | None = None
    reason: Reason | None = None
    code: str | None = Field(default=None, description="fault code of a run that ended in error")
    paused: str | None = Field(default=None, description="the budget whose top-up the run waits for; absent in lists")
    pauses: list[OpenPause] = Field(
        default_factory=list, description="open ones that wait for a person; absent in lists"
    )
    payload: FinalPayload | None = Field(default=None, description="once ended; absent in lists")
    usage: Usage | None = None


class RunDeletion(Message):
    """The deletion of a run: gateway to planner, in the bucket of runs. While it exists the run is not found."""

    v: Literal[1] = 1
    at: int = Field(description="Unix time in ms")
    requested_at: int | None = Field(
        default=None, description="of the run, which is part of its key in the index; null: not known"
    )
    session_id: str | None = Field(default=None, description="of the run: its session forgets it")


class AgentModels(Message):
    """An agent, with the models that answer its runs if a request names none."""

    name: str
    models: list[str]
    description: str = ""
    sees_images: bool = Field(default=True, description="whether one of them takes images")


class RunAccepted(Message):
    """The response to `POST /v1/runs`: the run is stored and will end."""

    run_id: str
    session_id: str = Field(description="a later request with it continues the conversation")
    status: State = "queued"
    url: str
    events_url: str
    ticket_url: str = Field(description="a POST there gives an address of the events that needs no key")


class TicketSecret(Message):
    """What a tenant's tickets are signed with, in hexadecimal digits."""

    v: Literal[1] = 1
    secret: str


class LoginEntry(Message):
    """A login of the playground: the key for which it stands."""

    v: Literal[1] = 1
    tenant: str
    key_id: str
    proof: str = Field(description="HMAC-SHA-256 of the key's digest by the cookie, in hexadecimal digits")
    ends_at: int = Field(description="Unix time in ms")


class InputInput(HttpInput):
    """The body of `POST /v1/runs/{run_id}/input`."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["text"], "properties": {"text": {"pattern": "\\S"}}},
                {"required": ["images"], "properties": {"images": {"minItems": 1}}},
            ]
        },
    )

    text: str = Field(default="", max_length=200_000)
    images: list[ImageInput] = Field(default_factory=list, max_length=64)
    redirect: bool = Field(
        default=False, description="the text replaces the question, and what the model writes now is superseded"
    )

    @model_validator(mode="after")
    def _not_empty(self) -> "InputInput":
        if not self.text.strip() and not self.images:
            raise ValueError("needs a text or an image")
        return self


class ResumeInput(HttpInput):
    """The body of `POST /v1/runs/{run_id}/resume`: a decision about a pause."""

    pause_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    token: str = Field(max_length=200, description="the pause's token: what was seen by the person who decides")
    decision: PauseDecision
    args: dict[str, Any] | None = Field(default=None, description="of `edit`: the arguments of the call, whole")
    input: Any = Field(default=None, description="of `answer`: valid by the pause's `input_schema`")
    images: list[ImageInput] = Field(default_factory=list, max_length=64, description="of `answer`")
    images_remove: list[str] = Field(
        default_factory=list, max_length=64, description="images that the model is no longer shown"
    )
    note: str = Field(default="", max_length=4000, description="the model receives it")


class InputAccepted(Message):
    """The response to `POST /v1/runs/{run_id}/input`."""

    run_id: str
    input_id: str


class ResumeAccepted(Message):
    """The response to `POST /v1/runs/{run_id}/resume`: the decision took effect."""

    run_id: str
    pause_id: str
    decision: PauseDecision
