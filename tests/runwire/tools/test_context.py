"""A tool asks a person, without a server. Read it from the top."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from contracts.tools.messages import PauseReply
from runwire import ToolContext, ToolError, tool
from runwire.testing import Paused, RecordingContext, Rejected
from runwire.tools.context import pause_in


class Seat(BaseModel):
    """What the person chooses."""

    row: int
    letter: str = "A"


@tool
async def book(flight: str, ctx: ToolContext) -> str:
    """The first pause chooses a seat, the second one confirms it."""
    ctx.state.setdefault("offers", []).append(f"{flight}-{len(ctx.state.get('offers', []))}")
    seat = await ctx.pause("input", {"free": [1, 2]}, schema=Seat, title="Which seat?", expires=timedelta(hours=2))
    await ctx.pause("approval", seat, title=f"Book row {seat.row}?")
    return f"{flight} {seat.row}{seat.letter}"


@tool
def book_plainly(flight: str, ctx: ToolContext) -> str:
    """The same in a plain function."""
    seat = ctx.pause(schema=Seat, default=Seat(row=9)).value
    return f"{flight} {seat.row}{seat.letter}"


async def pause_of(calling: Awaitable[Any]) -> PauseReply:
    """What a call asks for, which ends there."""
    with pytest.raises(Paused) as paused:
        await calling
    return paused.value.pause


async def test_a_pause_without_an_answer_ends_the_function() -> None:
    """What is asked can be read from it."""
    pause = await pause_of(book("LX 8", RecordingContext()))
    assert (pause.number, pause.reason, pause.title, pause.payload) == (0, "input", "Which seat?", {"free": [1, 2]})
    assert (pause.expires_in_s, pause.default, pause.state) == (7200, "reject", {"offers": ["LX 8-0"]})
    assert pause.input_schema is not None
    assert pause.input_schema["required"] == ["row"]


async def test_the_nth_pause_has_the_nth_answer() -> None:
    """The function runs from its beginning each time, with the state of the round before."""
    context = RecordingContext(answers=[{"row": 2}], state={"offers": ["LX 8-0"]})
    pause = await pause_of(book("LX 8", context))
    assert (pause.number, pause.reason, pause.payload) == (1, "approval", {"row": 2, "letter": "A"})
    assert pause.state == {"offers": ["LX 8-0", "LX 8-1"]}
    assert await book("LX 8", RecordingContext(answers=[Seat(row=2), True])) == "LX 8 2A"
    assert book_plainly("LX 8", RecordingContext(answers=[Seat(row=3)])) == "LX 8 3A"
    with pytest.raises(Paused) as paused:
        book_plainly("LX 8", RecordingContext())
    assert (paused.value.pause.default, paused.value.pause.default_answer) == ("answer", {"row": 9, "letter": "A"})


async def test_a_rejection_is_an_error_with_the_note() -> None:
    """A tool may catch it and go on; else its call fails with it."""
    with pytest.raises(ToolError, match="too expensive") as refused:
        await book("LX 8", RecordingContext(answers=[Seat(row=2), Rejected("too expensive")]))
    assert (refused.value.code, refused.value.retryable) == ("rejected", False)
    with pytest.raises(ToolError, match="row"):
        await book("LX 8", RecordingContext(answers=[{"letter": "B"}]))


async def test_an_answer_without_a_type_is_json() -> None:
    """A JSON Schema may say what is expected."""

    async def ask(context: ToolContext) -> Any:
        return await context.pause("input", schema={"type": "array"})

    assert await ask(RecordingContext(answers=[[1, 2]])) == [1, 2]
    assert (await pause_of(ask(RecordingContext()))).input_schema == {"type": "array"}


async def test_a_function_cannot_catch_a_pause_by_accident() -> None:
    """`except Exception` lets it pass. Caught by force it is still the first one that counts."""
    context = RecordingContext()

    async def careless() -> None:
        try:
            await context.pause(title="first")
        except Exception:  # noqa: BLE001, what tools do
            pytest.fail("a pause is no error of the tool")
        except BaseException:  # noqa: BLE001, what tools should not do
            await context.pause(title="second")

    assert (await pause_of(careless())).title == "first"
    with pytest.raises(ToolError, match="must let that exception pass"):
        context.check_not_caught()


async def test_a_test_notices_a_tool_that_catches_its_pause() -> None:
    """`run` does what a server does."""

    @tool
    async def careless(ctx: ToolContext) -> str:
        try:
            return await ctx.pause(schema=str)
        except BaseException:  # noqa: BLE001, what tools should not do
            return "window"

    with pytest.raises(ToolError, match="must let that exception pass"):
        await careless.run({}, RecordingContext())
    assert await careless.run({}, RecordingContext(answers=["aisle"])) == b'"aisle"'


async def test_a_pause_in_a_task_group_is_a_pause() -> None:
    """Unless something failed beside it."""

    async def fail() -> None:
        raise ValueError("no paper")

    async def group_of(*, failing: bool) -> BaseException:
        context = RecordingContext()

        async def ask() -> None:
            await context.pause(title="Which seat?")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ask())
                if failing:
                    group.create_task(fail())
        except BaseException as error:  # noqa: BLE001, what ends it is what is tested
            return error
        return pytest.fail("it ends with the pause")

    pause = pause_in(await group_of(failing=False))
    assert pause is not None
    assert pause.title == "Which seat?"
    assert pause_in(await group_of(failing=True)) is None


def test_what_is_too_large_is_refused_where_it_is_asked() -> None:
    """The state at 32 KiB, as tool_runner does."""
    context = RecordingContext(state={"notes": "x" * 32_768})
    with pytest.raises(ValueError, match="at most 32,768 are kept"):
        context.pause()
    with pytest.raises(ValueError, match="only one for `input` has a schema"):
        RecordingContext().pause("approval", schema=Seat)
    with pytest.raises(ValueError, match="at most 524,288 bytes"):
        RecordingContext().pause(payload="x" * 600_000)
