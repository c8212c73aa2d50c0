"""Upkeep of a service: work that is done again and again."""

import asyncio

import pytest
import structlog.testing

from services.runtime.tasks import every


async def test_upkeep_is_repeated_and_an_expected_failure_is_logged() -> None:
    """After a failure it is tried again sooner; an error that nobody expected ends it."""
    done: list[str] = []

    async def work() -> None:
        done.append("once more")
        if len(done) == 1:
            raise TimeoutError("not now")
        if len(done) == 3:
            raise RuntimeError

    with structlog.testing.capture_logs() as lines, pytest.raises(RuntimeError):
        await asyncio.wait_for(every(0.001, work, (TimeoutError,), "not_swept", retry_s=0.001), 5)
    assert [(line["event"], line["error"], line["log_level"]) for line in lines] == [
        ("not_swept", "not now", "warning")
    ]
