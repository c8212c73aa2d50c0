"""A tool is asked only on a fresh view of its run."""

import time

import pytest

from services.tool_runner.calls.dispatch import Look
from services.tool_runner.errors import AlreadySettled


async def test_a_fresh_view_is_not_taken_again() -> None:
    """The ordinary call costs no further look."""

    async def view() -> None:
        raise AssertionError("the view is fresh")

    await Look(view, time.monotonic()).again()


async def test_an_old_view_is_taken_again_once() -> None:
    """Afterwards it is fresh."""
    taken = []

    async def view() -> None:
        taken.append(time.monotonic())

    look = Look(view, time.monotonic() - 60)
    await look.again()
    await look.again()
    assert len(taken) == 1


async def test_a_view_that_counts_no_more_is_taken_again() -> None:
    """Before a call is repeated it is looked at anew, however fresh the view."""
    taken = []

    async def view() -> None:
        taken.append(time.monotonic())

    look = Look(view, time.monotonic())
    look.expire()
    await look.again()
    await look.again()
    assert len(taken) == 1


async def test_what_the_new_view_says_stops_the_call() -> None:
    """Somebody else has settled it while this process was stopped."""

    async def view() -> None:
        raise AlreadySettled

    with pytest.raises(AlreadySettled):
        await Look(view, time.monotonic() - 60).again()
