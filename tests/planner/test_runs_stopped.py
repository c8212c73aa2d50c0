"""What a run says that was stopped: what its listeners saw, and never the raw data of a tool."""

from typing import Any

import pytest

from contracts.runs.events import Chunk
from contracts.runs.inbox import CancelRequested
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, answer, words
from tests.support.run_services import Handler, Planning


async def rows(_: dict[str, Any]) -> Any:
    """Data without a text."""
    return {"rows": [{"id": 1, "secret": "CANARY"}]}


ROWS: dict[str, tuple[ToolSpec, Handler]] = {"rows": (ToolSpec(name="rows", idempotent=True), rows)}


async def cancel(planning: Planning, run: str) -> None:
    """Ask for the end of a run."""
    body = CancelRequested(reason="enough").model_dump_json().encode()
    await planning.bus.publish(subjects.control("default", run, "cancel-1"), body)


@pytest.mark.parametrize("number", range(3))
async def test_a_cancelled_answer_is_what_was_shown(plan: Plan, provider: ModelServer, number: int) -> None:
    """Character by character, although the model goes on writing meanwhile."""
    planning = await plan()
    provider.say(Say(text=answer(words(8_000)).text, piece=40, pause_s=0.0005, stall_after=1_500))
    run = await planning.ask(f"Stop {number}")
    await planning.until(run, lambda event: isinstance(event, Chunk) and event.seq >= number)
    await cancel(planning, run)
    story = await planning.ended(run)
    assert story.end.type == "cancelled"
    shown = "".join(chunk.text for chunk in story.chunks())
    assert shown
    assert words(8_000).startswith(shown)
    assert story.end.payload.raw_answer == shown
    assert story.facts() == ["run_started", "asked", "stopping", "cancelled"]
