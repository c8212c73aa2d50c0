"""Proposals of a session: payloads of its turns that a person applies or dismisses, as its log records them.

A proposal is `pending → applying → applied | dismissed | superseded`. The first record that changes a pending one
decides, so an apply and a new message never both take it.

Rule 1: one proposal of a session is pending. A new message supersedes it, unless the request says `keep_proposal`, and
so does the proposal of a later turn.
Rule 2: an apply is a run of the session with the cause `call`. Its id follows from proposal, choice and attempt
(`contracts.wire.names.apply_run_id`), so a repeated apply finds the same run.
"""

from typing import Any, Literal

from pydantic import Field

from ..runs.requests import RunRequested
from ..wire.base import HttpInput, Message, is_absent

ProposalState = Literal["pending", "applying", "applied", "dismissed", "superseded"]
APPLICABLE: dict[str, Literal["schema", "data"]] = {"schema_proposal": "schema", "data_proposal": "data"}
"""Type of a payload that is a proposal -> what `apply_proposal` calls it."""
APPLY_TOOL, CHECK_TOOL = "apply_proposal", "check_proposal"
MAX_REASONS = 20
"""Verdicts of refused operations that the log of a session keeps. All of them are in the result of the apply's run."""


class PayloadKept(Message):
    """A payload of a turn: a proposal, or another thing that a page shows."""

    payload_id: str
    kind: str
    summary: str
    table_id: str | None = None
    base_version: int | None = None


class ProposalPending(Message):
    """A turn ended with a proposal."""

    type: Literal["proposal_pending"] = "proposal_pending"
    proposal_id: str
    run: str = Field(description="the turn")
    kind: str
    summary: str
    table_id: str | None = Field(default=None, description="null: a new table")


class ProposalApplying(Message):
    """A person applies a proposal, or some of its operations."""

    type: Literal["proposal_applying"] = "proposal_applying"
    proposal_id: str
    operations: list[int] = Field(description="numbers of the chosen operations")
    of: int = Field(description="how many operations the proposal has")
    with_samples: bool = Field(default=False, description="of a new table: with its sample rows")
    job: str = Field(description="the run that applies it")
    by: str = Field(default="", description="id of the API key")


class Verdict(Message):
    """Why an operation was refused. `index`: its number; -1: the proposal as a whole."""

    index: int
    code: str
    field: str | None = None
    reason: str = ""


class ProposalReport(Message):
    """What came of an apply, as the tables say."""

    applied: int
    failed: int
    counts: dict[str, int] = Field(default_factory=dict, description="applied operations by action")
    table_id: str | None = None
    version: int | None = Field(default=None, description="of the table, after the apply")
    refused: list[Verdict] = Field(default_factory=list, description="the first 20")


class ProposalApplied(Message):
    """An apply has ended."""

    type: Literal["proposal_applied"] = "proposal_applied"
    proposal_id: str
    job: str
    report: ProposalReport


class ProposalReleased(Message):
    """An apply has failed as a whole: the proposal is pending again. What was applied of it is not applied again."""

    type: Literal["proposal_released"] = "proposal_released"
    proposal_id: str
    job: str
    code: str = Field(description="how the run of the apply ended")


class ProposalDismissed(Message):
    """A person dismissed a proposal."""

    type: Literal["proposal_dismissed"] = "proposal_dismissed"
    proposal_id: str
    by: str = Field(default="", description="id of the API key")


class ProposalSuperseded(Message):
    """A new message, or the proposal of a later turn, took the place of a proposal."""

    type: Literal["proposal_superseded"] = "proposal_superseded"
    proposal_id: str
    by: str = Field(description="the run")


ProposalEvent = (
    ProposalPending
    | ProposalApplying
    | ProposalApplied
    | ProposalReleased
    | ProposalDismissed
    | ProposalSuperseded
)  # fmt: skip


class SessionProposalControl(Message):
    """A person applies or dismisses a proposal."""

    v: Literal[1] = 1
    kind: Literal["proposal"] = "proposal"
    session_id: str
    proposal_id: str
    apply: ProposalApplying | None = Field(default=None, description="null: it is dismissed")
    request: RunRequested | None = Field(default=None, description="of the run that applies it")
    by: str = ""


class ProposalInput(HttpInput):
    """The body of `POST /v1/proposals/{proposal_id}/apply`."""

    operations: list[int] | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="numbers of the operations to apply, from 0; null: all. A change of columns is applied as a whole",
    )
    include_sample_rows: bool = Field(default=False, description="of a new table: with the sample rows")


class ProposalEntry(Message):
    """A proposal, as its session lists it."""

    proposal_id: str
    run_id: str = Field(description="the turn that proposed it")
    kind: str
    summary: str
    state: ProposalState
    table_id: str | None = None


class ProposalView(Message):
    """A proposal, as HTTP shows it."""

    proposal_id: str
    session_id: str
    run_id: str = Field(description="the turn that proposed it")
    kind: str
    summary: str
    state: ProposalState
    data: dict[str, Any] = Field(description="as the model proposed it, with the ids of columns")
    table_id: str | None = None
    base_version: int | None = Field(default=None, description="of the table, when the model saw it")
    operations: list[int] = Field(default_factory=list, description="the chosen ones, of an apply")
    job: str | None = Field(default=None, description="the run of the newest apply")
    verdicts: list[dict[str, Any]] = Field(
        default_factory=list,
        description="of each operation: what came of it, or, while it is pending, what would now come of it",
    )
    report: ProposalReport | None = Field(default=None, description="of an apply that has ended")
    code: str | None = Field(default=None, exclude_if=is_absent, description="why the newest apply failed as a whole")
    superseded_by: str | None = Field(default=None, exclude_if=is_absent, description="the run that took its place")
    decided_by: str = Field(
        default="", exclude_if=is_absent, description="id of the API key that applied or dismissed it last"
    )
    decided_at: int | None = Field(default=None, exclude_if=is_absent, description="when, Unix ms")
    view: dict[str, Any] = Field(default_factory=dict, description="how it is drawn: rows or columns, with their marks")


class ProposalPlace(Message):
    """Where a proposal is, in the bucket of runs: its key names proposal and run."""

    v: Literal[1] = 1
