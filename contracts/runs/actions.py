"""What the planner may decide: one action, two fields.

`next_node` is a tool's name or one of the opcodes below; `args` is a JSON object whose shape depends on it. Model
output in any other form is turned into this one by `services.planner.replies.actions.normalize_action` and by nothing
else.
"""

from typing import Any, Literal

from pydantic import Field

from ..wire.base import Message

FINAL_RESPONSE = "final_response"
"""Ends the run with an answer, which streams to the user."""
PLAN = "plan"
"""Runs several tools at once."""
TASK = "task"
"""Starts work in the background."""

OPCODES = frozenset({FINAL_RESPONSE, PLAN, TASK})
ALIASES = {"parallel": PLAN, "task.subagent": TASK, "task.tool": TASK}
RESERVED = OPCODES | frozenset(ALIASES)
"""Names that no tool may have in the model's view. Such a tool is shown under an alias."""


class PlannerAction(Message):
    """One decision of the model."""

    next_node: str
    args: dict[str, Any] = Field(default_factory=dict)

    @property
    def opcode(self) -> str | None:
        """The opcode, with aliases resolved; None if a tool is called."""
        node = ALIASES.get(self.next_node, self.next_node)
        return node if node in OPCODES else None

    @property
    def is_terminal(self) -> bool:
        """Whether it ends the run."""
        return self.opcode == FINAL_RESPONSE


class PlanStep(Message):
    """One branch of a plan: tool `node` called with `args`."""

    node: str
    args: dict[str, Any] = Field(default_factory=dict)


class Join(Message):
    """The tool that receives the results of a plan's branches.

    `inject` maps argument names to sources (`$results`, `$all`, `$branches`, `$failures`, `$success_count`,
    `$failure_count`, `$expect`); None fills the arguments of those names, an empty mapping fills
    nothing.
    """

    node: str
    args: dict[str, Any] = Field(default_factory=dict)
    inject: dict[str, str] | None = None


class PlanArgs(Message):
    """`args` of `plan`."""

    steps: list[PlanStep]
    join: Join | None = None


class TaskArgs(Message):
    """`args` of `task`: a background run (`subagent`, by `query`) or one background tool call (`job`, by `tool`)."""

    name: str | None = None
    mode: Literal["subagent", "job"] | None = None
    agent: str | None = None
    query: str | None = None
    tool: str | None = None
    tool_args: dict[str, Any] = Field(default_factory=dict)
    merge_strategy: Literal["APPEND", "REPLACE", "HUMAN_GATED"] | None = None
    group: str | None = None
    group_id: str | None = None
    group_sealed: bool | None = None
    group_report: Literal["all", "any", "none"] | None = None
    group_merge_strategy: Literal["APPEND", "REPLACE", "HUMAN_GATED"] | None = None
    retain_turn: bool | None = None


class FinalResponseArgs(Message):
    """`args` of `final_response`.

    Optional fields are checked one by one when the payload is assembled, so they are untyped here.
    """

    answer: str
    confidence: Any = None
    route: Any = None
    requires_followup: Any = None
    warnings: Any = None
    language: Any = None
    sources: Any = None
    suggested_actions: Any = None
