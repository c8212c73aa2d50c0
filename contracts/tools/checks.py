"""The check of a tool against the standard form of results: an operator asks, an instance of tool_runner answers.

The request is a `CheckTool` on `check.tool`. Until the answer, a `ToolChecked` with the kind `result`, the
replies are of the kind `heartbeat`. A request that cannot be read is answered with a `Fault` of the kind `failure`.
"""

from typing import Any, Literal

from pydantic import Field

from ..wire.base import Message


class CheckTool(Message):
    """Check what a tool announces, and with `args` one real call of it, whose result is not stored."""

    tool: str
    args: dict[str, Any] | None = Field(default=None, description="of the call; null: the tool is not called")
    context: dict[str, Any] = Field(default_factory=dict, description="the `tool_context` of the call")
    confirmed: bool = Field(default=False, description="call it also if it requires approval or has side effects")


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
