"""Pauses of a run: what a person is asked, which decisions are possible, and what a decision is about.

Rule 1: a token says what a person saw: pause, revision and digest. It is no secret; the right to decide belongs to the
API key.
Rule 2: planner and tool_runner compute the digest with the same function (`services.shared.tools.approvals`), so a call
with other arguments than the approved ones is not executed.
"""

import hashlib
from typing import Any, Literal

from pydantic import Field

from ..wire.base import Message

PauseReason = Literal["approval", "input", "confirmation", "budget"]
"""`approval`: a call, or a text that a rule matches, waits for consent. `input`: a tool or the planner waits for an
answer. `confirmation`: a tool, or the spawn of a background task, waits for consent. `budget`: the run waits for a
top-up."""
PauseSource = Literal["tool", "policy", "planner", "mcp", "task"]
"""Who asks. `task`: a model's call about background tasks. `planner`: the run itself, also about held results. Nothing
writes `mcp` yet; readers accept it."""
PauseDecision = Literal["approve", "reject", "edit", "answer"]
PauseDefault = Literal["reject", "answer"]
"""What happens when a pause expires. Approval is never a default."""

DEFAULT_PAUSE_S, MAX_PAUSE_S = 7 * 86_400.0, 365 * 86_400.0
MAX_STATE_BYTES = 32 * 1024
"""Largest `ctx.state` of a call that is paused, as JSON."""
MAX_UNREAD_INPUTS = 64
"""Inputs of people that a run keeps before its next decision; a further one is refused."""

ApprovalMode = Literal["never", "always", "once_per_session"]


class ApprovalRule(Message):
    """Which calls need a person's approval. Of several rules that match a call, the first one counts.

    A tool that requires approval (`ToolSpec.requires_approval`) needs one even if no rule matches.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    tools: list[str] = Field(min_length=1, description="names of tools; `*` alone: every tool")
    arguments: dict[str, Any] | None = Field(
        default=None, description="JSON Schema: the rule matches calls whose arguments are valid; null: all calls"
    )
    ask: ApprovalMode = Field(
        default="always",
        description="`never`, unless the tool requires it; `once_per_session`: one covers later calls of the user",
    )
    title: str = Field(default="", max_length=200, description="shown to the person who decides")
    expires_in_s: float = Field(default=DEFAULT_PAUSE_S, gt=0, le=MAX_PAUSE_S, description="then the call is rejected")
    reapprove_edits: bool = Field(default=False, description="edited arguments wait for a further approval")


class CallApproval(Message):
    """The approval of one call, as it travels to tool_runner. `digest` is that of the call which was approved."""

    digest: str
    pause_id: str | None = Field(default=None, description="null: `once_per_session`, given earlier in the session")
    revision: int = 1


class PauseAnswer(Message):
    """The answer to one pause of a call."""

    number: int = Field(ge=0, description="counts the pauses of the call from 0")
    decision: PauseDecision
    input: Any = None
    note: str = ""


class OpenPause(Message):
    """An open pause, as people see it."""

    pause_id: str
    run_id: str
    reason: PauseReason
    source: PauseSource
    title: str = ""
    payload: Any = Field(default=None, description="for the person who decides; above 32 KiB an ArtifactRef")
    input_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema of `input` of an answer")
    call_id: str | None = None
    tool: str | None = None
    arguments: dict[str, Any] | None = Field(default=None, description="of the call that waits")
    step: int | None = Field(default=None, description="the step that the call belongs to")
    plan: list[dict[str, Any]] = Field(
        default_factory=list, description="all calls of that step as `{call_id, tool, args}`, if there are several"
    )
    rule: str | None = Field(default=None, description="the approval rule that asks")
    revision: int = 1
    token: str = ""
    expires_at: int = Field(description="Unix ms")
    default: PauseDefault = Field(default="reject", description="what happens at `expires_at`")
    default_answer: Any = None


class Yielded(Message):
    """A report gives its turn to a user's run, and asks no model until its own turn comes again (`resumed`)."""

    type: Literal["yielded"] = "yielded"
    seq: int = Field(description="sequence of the session's record that gave the turn away")


class TasksPaused(Message):
    """What tasks that a call waits for need of people, in the place of what an earlier event said. No pauses: nothing.

    Their runs hold the rest of each pause. Of one whose `run_id` is this run, held results wait for a decision.
    """

    type: Literal["tasks_paused"] = "tasks_paused"
    call_id: str
    seq: int = Field(description="sequence of the session's record; an older message changes nothing")
    pauses: list[OpenPause] = Field(description="without payload, schema and arguments")


def pause_id(run: str, place: str, number: int) -> str:
    """Derive the id of a pause.

    `place`: the call id for a tool's pause, `<call id>-approval`, or `step-<n>` for the model's question. `number`
    counts the pauses there from 0. `text_pause_id`: that of a text.
    """
    return hashlib.sha256(f"{run}\n{place}\n{number}".encode()).hexdigest()[:32]


def text_pause_id(run: str, place: str) -> str:
    """Derive the id of the pause of a text that a person has to admit. `place`: id of the input, or `question`."""
    return pause_id(run, f"text-{place}", 0)


def token_of(pause: str, revision: int, digest: str) -> str:
    """Return the token of a pause."""
    return f"{pause}.{revision}.{digest[:32]}"
