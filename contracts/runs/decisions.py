"""What a model may decide: one action, or with the strategy `planned` a plan of calls.

An action has two fields. `next_node` is a tool's name or one of the opcodes; `args` is a JSON object whose shape
depends on it. Model output in any other form is turned into this one by
`services.planner.replies.actions.normalize_action` and by nothing else.

A plan holds calls in order, whose arguments may be templates, and what a check says of them. A template is a whole
string `$N.output.field`: the value at that path in the result of call N, counted from 0.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from ..wire.base import Message

DIRECT_RESPONSE: Final = "direct_response"
TOOL_CALLS: Final = "tool_calls"
"""The other `type` of what a model gives: a plan of calls, where `direct_response` is an answer."""
PlanWarningCode = Literal["nullable_source", "embedded_template_not_resolved"]
CallStatus = Literal["success", "failed", "not_executed"]
"""How a call of a plan has ended. `not_executed`: the plan was halted before it."""


class PlanCall(Message):
    """One call of a plan."""

    tool_name: str
    arguments: dict[str, Any] = Field(default_factory=dict, description="values; a string may be a template")


class Plan(Message):
    """Calls that run one after another, as the model planned them."""

    reasoning: str = ""
    calls: list[PlanCall]


class FieldNotFound(Message):
    """The output schema of the tool declares no such field."""

    type: Literal["field_not_found"] = "field_not_found"
    tool_name: str = Field(description="of the call that the template refers to")
    tool: str = Field(description="the same name")
    field: str = Field(description="dotted path, up to and including the missing segment")
    available_fields: list[str] = Field(description="the names at that level, as declared")


class TypeMismatch(Message):
    """The field has a type that the argument does not take."""

    type: Literal["type_mismatch"] = "type_mismatch"
    tool_name: str = Field(description="of the call that the template refers to")
    field: str = Field(description="dotted path")
    source_types: list[str]
    target_types: list[str]


class IndexOutOfBounds(Message):
    """The plan has no call of this number."""

    type: Literal["index_out_of_bounds"] = "index_out_of_bounds"
    referenced_index: int
    max_valid_index: int | None = Field(description="null: no call comes before this one")


class ForwardReference(Message):
    """The call that the template refers to comes later."""

    type: Literal["forward_reference"] = "forward_reference"
    referenced_index: int


class NoOutputSchema(Message):
    """The tool declares no output schema, so nothing may refer to its result."""

    type: Literal["no_output_schema"] = "no_output_schema"
    tool_name: str


class UnknownTool(Message):
    """The run has no tool of this name."""

    type: Literal["unknown_tool"] = "unknown_tool"
    tool_name: str
    available_tools: list[str]


class InvalidArgument(Message):
    """A literal argument does not fit the tool's input schema, or one that it requires is missing."""

    type: Literal["invalid_argument"] = "invalid_argument"
    reason: str


class OverLimit(Message):
    """The plan is larger than a limit allows, or its check would take too much work."""

    type: Literal["too_many_calls", "arguments_too_large", "too_deep", "schema_too_complex"]
    limit: int
    found: int | None = Field(default=None, description="null: it was not counted further")


class PlainError(Message):
    """An error that its type says in full."""

    type: Literal[
        "invalid_template_syntax",
        "self_reference",
        "unparseable",
        "unknown_type",
        "content_missing",
        "calls_missing",
        "empty_plan",
        "tool_name_missing",
        "arguments_not_object",
    ]


PlanErrorDetail = Annotated[
    FieldNotFound
    | TypeMismatch
    | IndexOutOfBounds
    | ForwardReference
    | NoOutputSchema
    | UnknownTool
    | InvalidArgument
    | OverLimit
    | PlainError,
    Field(discriminator="type"),
]


class PlanError(Message):
    """One error of a plan."""

    tool_index: int | None = Field(description="number of the call, from 0; null: the plan as a whole")
    argument: str = Field(default="", description="dotted path in the arguments, with `[i]` for items of lists")
    template: str = ""
    error: PlanErrorDetail


class PlanWarning(Message):
    """What may be a mistake and does not keep a plan from running."""

    tool_index: int
    argument: str
    warning: PlanWarningCode


class PlanReport(Message):
    """The answer of `POST /v1/plans/check`: what a check says of a plan. Nothing of it has run."""

    valid: bool = Field(description="it would run; a direct response is valid")
    kind: Literal["direct_response", "tool_calls", "invalid"] = Field(description="`invalid`: it cannot be read")
    errors: list[PlanError] = Field(default_factory=list)
    errors_left_out: int = Field(default=0, description="errors that are not listed: at most 100 are")
    warnings: list[PlanWarning] = Field(default_factory=list)
    lines: list[str] = Field(
        default_factory=list, description="the same for people: a line for each error and warning, with what to do"
    )
    resolved: list[dict[str, Any] | None] | None = Field(
        default=None,
        description="arguments of each call with the values of its templates; null for a call that lacks one. Null as a"
        " whole without outputs, and for a plan that is not valid",
    )


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
