"""Mistakes of a tool's author; each is found where the comment stands."""

from runwire import ToolContext, ToolResponse, tool
from runwire.testing import RecordingContext


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(side_effects="explosion")  # mypy: call-overload, untyped-decorator
def explode() -> None:
    """A flag with a wrong value."""


@tool(idempotnt=True)  # mypy: call-overload, untyped-decorator
def misspell() -> None:
    """A flag that does not exist."""


@tool
async def report(ctx: ToolContext) -> None:
    """Wrong arguments of the context."""
    await ctx.progress("half", "0.5")  # mypy: arg-type
    await ctx.emit_artifact("sales", {})  # mypy: call-arg
    await ctx.pause("boredom")  # mypy: call-overload
    seat: int = await ctx.pause(schema=str)  # mypy: arg-type
    print(seat, ctx.secrets)  # mypy: attr-defined


@tool
async def respond(topic: str) -> ToolResponse[int]:
    """A result without its artifact, and with another one than the function says."""
    if not topic:
        return ToolResponse(artifact_id="abc-123")  # mypy: call-arg
    return ToolResponse(topic, skill="research_blog")  # mypy: arg-type, call-arg


double("2")  # mypy: arg-type
double(2).upper()  # mypy: attr-defined
double.run({"number": 2}, None)  # mypy: arg-type, unused-coroutine
RecordingContext(progress=1)  # mypy: call-arg
