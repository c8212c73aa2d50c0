"""Sessions: the records on a session's log, the messages to a session, and what HTTP shows of it.

A session ties runs together: one conversation, in which one run at a time has the turn. It is a fold of its own log.

Rule 1: a fact about a run is written to the run's log first; a message then notifies the session, which takes each
fact once.
Rule 2: the session keeps the question and the answer of each turn. When a run is deleted or purged, it forgets them.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, TypeAdapter

from ..runs.events import UnknownEvent
from ..runs.pauses import OpenPause
from ..runs.payload import Reason, Usage
from ..runs.requests import KeyBudget, Memory, OnBusy, RunCause, RunStatus
from ..wire.base import MAX_INLINE_BYTES, HttpInput, Message, is_absent, of_no_type_in
from ..wire.faults import Fault
from ..wire.names import new_id, unix_ms
from .proposals import PayloadKept, ProposalEntry, ProposalEvent, ProposalReport, SessionProposalControl
from .tasks import GroupView, SessionTaskMessage, TaskEvent, TaskView

MAX_TURN_BYTES = MAX_INLINE_BYTES
"""Longest question, and longest answer, that the log of a session holds. The whole of a longer one is in the log of its
run, and read from there as long as the run is stored."""
MAX_CONTEXT_BYTES = 32 * 1024
"""Largest context of a session, as JSON."""
CHECKPOINT_EVERY = 100
"""Records after which the session's whole state is written, so that loading a session costs two reads."""
DELETED_TTL_S = 86_400
"""How long the last record of a deleted session is kept: who remembers the session learns from it that it is gone."""
MAX_REMEMBERED_S = 3_600
"""After so long without a look at its log, a session is read from its log alone."""
CHECKPOINT_HEADER = "Runwire-Checkpoint"
"""On each record: sequence of the newest checkpoint on the session's log; 0 or absent: there is none."""

SESSION_HEADER = "Runwire-Session"
"""On the request of a run that a session makes: the session's key, so that it learns of a run that nobody can read."""


class SessionStarted(Message):
    """The first request of a session arrived."""

    type: Literal["session_started"] = "session_started"
    session_id: str
    created_by: str = Field(default="", description="id of the API key; empty: a keyless caller")
    user_id: str | None = None


class RunQueued(Message):
    """A run joined the session. It begins at once if nobody has the turn."""

    type: Literal["run_queued"] = "run_queued"
    run: str
    cause: RunCause = "user"
    on_busy: OnBusy = "queue"
    requested_at: int = Field(description="Unix ms; of a summary 0: it is requested at the time of this record")
    is_first: bool = Field(default=False, description="it is the next one to begin (`on_busy: cancel`)")


class RunBegun(Message):
    """A run has the turn, or, for a summary, began beside it."""

    type: Literal["run_begun"] = "run_begun"
    run: str


class RunYielded(Message):
    """The report that had the turn gave it to a user's run. It begins again when no user's run waits."""

    type: Literal["run_yielded"] = "run_yielded"
    run: str


class InputForwarded(Message):
    """The text of a queued run was sent to the run that has the turn."""

    type: Literal["input_forwarded"] = "input_forwarded"
    run: str
    into: str


class RunMergedInto(Message):
    """The run that has the turn took the text of a queued one."""

    type: Literal["run_merged"] = "run_merged"
    run: str
    into: str


class InputMissed(Message):
    """The run that should take the text of a queued one had ended, so the queued one waits for its own turn."""

    type: Literal["input_missed"] = "input_missed"
    run: str
    into: str


class RunRefusedBySession(Message):
    """A run may not run in this session."""

    type: Literal["run_refused"] = "run_refused"
    run: str
    fault: Fault


class RunWaits(Message):
    """What a run waits for. It keeps the turn. `waits`: it does nothing but wait for a person."""

    type: Literal["run_waits"] = "run_waits"
    run: str
    seq: int = Field(description="sequence of the run's record; an older message changes nothing")
    waits: bool
    pauses: list[OpenPause] = Field(default_factory=list, description="without payload, schema and arguments")


class RunEnded(Message):
    """A run of the session ended. `question`, `answer` and all `inputs` are at most 32 KiB each."""

    type: Literal["run_ended"] = "run_ended"
    run: str
    outcome: Literal["done", "error", "cancelled"]
    code: str | None = None
    question: str = ""
    inputs: list[str] = Field(default_factory=list, description="texts that were added while the run went on")
    answer: str = ""
    is_cut: bool = Field(default=False, description="texts were longer; the whole ones are in the run's log")
    attached: list[str] = Field(default_factory=list, description="ids of the images that came with the question")
    requested_at: int = 0
    usage: Usage = Usage()
    payloads: list[PayloadKept] = Field(default_factory=list, exclude_if=is_absent, description="of a chat turn")


class ContextSet(Message):
    """Values that later runs of the session are shown, as untrusted data."""

    type: Literal["context_set"] = "context_set"
    values: dict[str, Any] = Field(description="a value of null removes its name")
    by: str = ""


class Summarised(Message):
    """The turns up to and with the one of run `through` are represented by `text` from now on."""

    type: Literal["summarised"] = "summarised"
    through: str
    run: str = Field(description="the run that made the summary")
    text: str
    model: str = ""
    usage: Usage = Usage()


class ApprovedForSession(Message):
    """A person approved a call under a rule that asks once per session. It counts for later runs of the same user."""

    type: Literal["approved_for_session"] = "approved_for_session"
    rule: str
    tool: str
    agent: str
    user_id: str | None = None
    by: str = ""


class RunsForgotten(Message):
    """Runs were deleted, or purged after their retention: the session keeps nothing that was said in them."""

    type: Literal["runs_forgotten"] = "runs_forgotten"
    runs: list[str] = Field(description="empty: the events before this one are gone, with those of runs forgotten then")


class SessionDeleting(Message):
    """The session is being deleted: its open runs are cancelled, and no run may join it until it is gone."""

    type: Literal["deleting"] = "deleting"
    by: str = ""


class SessionDeleted(Message):
    """The session was deleted. A later request with its id starts a new one."""

    type: Literal["deleted"] = "deleted"


class Checkpoint(Message):
    """The whole state after the record that contains this event, as the planner folds it."""

    type: Literal["checkpoint"] = "checkpoint"
    state: dict[str, Any]


KnownSessionEvent = Annotated[
    SessionStarted
    | RunQueued
    | RunBegun
    | RunYielded
    | InputForwarded
    | RunMergedInto
    | InputMissed
    | RunRefusedBySession
    | RunWaits
    | RunEnded
    | ContextSet
    | Summarised
    | ApprovedForSession
    | RunsForgotten
    | SessionDeleting
    | SessionDeleted
    | Checkpoint
    | TaskEvent
    | ProposalEvent,
    Discriminator("type"),
]
_KNOWN = get_args(get_args(KnownSessionEvent)[0])
SessionEvent = Annotated[
    KnownSessionEvent | Annotated[UnknownEvent, of_no_type_in(_KNOWN)], Field(union_mode="left_to_right")
]


class SessionRecord(Message):
    """All events of one transition of a session, in order."""

    v: Literal[1] = 1
    id: str = Field(default_factory=new_id, description="made by the writer")
    at: int = Field(default_factory=unix_ms, description="the writer's clock, Unix ms; for people")
    by: str = Field(default="", description="`<stream>:<sequence>` of the message whose handling wrote it")
    events: list[SessionEvent] = Field(min_length=1)

    def types(self) -> str:
        """The value of the header `Runwire-Events`."""
        return ",".join(event.type for event in self.events)


class SessionRunEnded(Message):
    """A run tells its session that it has ended."""

    v: Literal[1] = 1
    kind: Literal["run_ended"] = "run_ended"
    ended: RunEnded
    cause: RunCause = "user"
    through: str | None = Field(default=None, description="of a summary: the run of the last turn that it covers")
    model: str = ""
    memory: Memory | None = Field(default=None, description="of the run; decides whether a summary is due")
    set_aside: Usage = Field(
        default=Usage(),
        description="what its tasks take of its limits, spent or set aside: tokens as `prompt_tokens`; cost null: none",
    )
    reason: Reason | None = Field(default=None, description="of a run that ended as `done`")
    report: ProposalReport | None = Field(default=None, exclude_if=is_absent, description="of an apply")
    key_id: str = Field(default="", description="of the run; a summary counts for the same API key")
    key_budget: KeyBudget | None = None


class SessionRunWaits(Message):
    """A run tells its session what it waits for."""

    v: Literal[1] = 1
    kind: Literal["run_waits"] = "run_waits"
    waits: RunWaits


class SessionInputTaken(Message):
    """A run took the text of another one as an input (`taken`), or had ended before."""

    v: Literal[1] = 1
    kind: Literal["input_taken"] = "input_taken"
    run: str
    into: str
    taken: bool


class SessionQueueExpired(Message):
    """A queued run has waited for its turn as long as it may."""

    v: Literal[1] = 1
    kind: Literal["queue_expired"] = "queue_expired"
    run: str


class SessionContextRequested(Message):
    """A caller sets the session's context."""

    v: Literal[1] = 1
    kind: Literal["context"] = "context"
    values: dict[str, Any]
    session_id: str
    by: str = ""
    user_id: str | None = None


class SessionApproved(Message):
    """A call was approved under a rule that asks once per session."""

    v: Literal[1] = 1
    kind: Literal["approved"] = "approved"
    approved: ApprovedForSession


class SessionRunsForgotten(Message):
    """Runs of the session were deleted or purged."""

    v: Literal[1] = 1
    kind: Literal["forget"] = "forget"
    runs: list[str]


class SessionDeletionRequested(Message):
    """A caller deletes the session."""

    v: Literal[1] = 1
    kind: Literal["delete"] = "delete"
    by: str = ""
    unchanged_since: int | None = Field(
        default=None, description="Unix ms: only if nothing has happened in the session after it; null: in any case"
    )


_SessionMessage = (
    SessionRunEnded
    | SessionRunWaits
    | SessionInputTaken
    | SessionQueueExpired
    | SessionContextRequested
    | SessionApproved
    | SessionRunsForgotten
    | SessionDeletionRequested
    | SessionTaskMessage
    | SessionProposalControl
)
SessionMessage = Annotated[_SessionMessage, Field(discriminator="kind")]
SESSION_MESSAGE: TypeAdapter[_SessionMessage] = TypeAdapter(SessionMessage)


class SessionEntry(Message):
    """A session in the index, as lists show it."""

    session_id: str
    key: str = Field(description="the session's part of subjects on NATS: 32 hexadecimal digits")
    user_id: str | None = None
    created_at: int = Field(description="Unix ms")
    updated_at: int = Field(description="Unix ms")
    runs: int = Field(default=0, description="runs so far, summaries not counted")
    current_run: str | None = Field(default=None, description="the run that has the turn")
    queued_runs: int = 0
    open_pauses: int = 0
    open_tasks: int = Field(default=0, description="background tasks that go on")
    open_decisions: int = Field(default=0, description="groups and tasks whose results a person applies or rejects")
    pending_proposal: str | None = Field(
        default=None, exclude_if=is_absent, description="id of the proposal that a person applies or dismisses"
    )
    usage: Usage = Field(default=Usage(), description="of all runs that ended, summaries included")


class SessionStatus(SessionEntry):
    """A session: `GET /v1/sessions/{session_id}`."""

    recent_runs: list[RunStatus] = Field(default_factory=list, description="at most 100, newest first")
    queue: list[str] = Field(default_factory=list, description="runs that wait for their turn, in their order")
    summary: str = Field(default="", description="represents the older turns")
    context: dict[str, Any] = Field(default_factory=dict)
    pauses: list[OpenPause] = Field(default_factory=list, description="of all runs of the session")
    tasks: list[TaskView] = Field(
        default_factory=list,
        description="background tasks without results, at most 100: those that go on, then the newest that ended",
    )
    groups: list[GroupView] = Field(default_factory=list, description="the newest 100, newest first")
    proposals: list[ProposalEntry] = Field(default_factory=list, description="of the newest 50 payloads, newest first")


class SessionContextInput(HttpInput):
    """The body of `PUT /v1/sessions/{session_id}/context`."""

    values: dict[str, Any] = Field(min_length=1, description="a value of null removes its name; 32 KiB in all")
