"""Plans of the strategy `planned`: calls in order, whose arguments may be templates, and what a check says of them.

A template is a whole string `$N.output.field`: the value at that path in the result of call N, counted from 0.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from ..wire.base import Message

DIRECT_RESPONSE: Final = "direct_response"
TOOL_CALLS: Final = "tool_calls"
PLAN_TYPES = frozenset({DIRECT_RESPONSE, TOOL_CALLS})
"""The `type` of what a model gives: an answer, or a plan of calls."""
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
