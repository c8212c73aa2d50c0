"""A tool is called only after a recent check of its run."""

import time

import pytest

from services.tool_runner.calls.dispatch import StatusCheck
from services.tool_runner.errors import AlreadySettled


async def test_a_recent_check_is_not_repeated() -> None:
    """An ordinary call costs no further check."""

    async def check() -> None:
        raise AssertionError("the last check is recent")

    await StatusCheck(check, time.monotonic()).refresh()


async def test_an_old_check_is_repeated_once() -> None:
    """Afterwards it is recent."""
    taken = []

    async def check() -> None:
        taken.append(time.monotonic())

    status = StatusCheck(check, time.monotonic() - 60)
    await status.refresh()
    await status.refresh()
    assert len(taken) == 1


async def test_an_expired_check_is_repeated() -> None:
    """Before a call is repeated its status is checked, however recent the last check."""
    taken = []

    async def check() -> None:
        taken.append(time.monotonic())

    status = StatusCheck(check, time.monotonic())
    status.expire()
    await status.refresh()
    await status.refresh()
    assert len(taken) == 1


async def test_the_new_check_stops_the_call() -> None:
    """Somebody else has settled it while this process was stopped."""

    async def check() -> None:
        raise AlreadySettled

    with pytest.raises(AlreadySettled):
        await StatusCheck(check, time.monotonic() - 60).refresh()
