"""Timers reach the control consumer: they end a run in time, whatever waits for models."""

from functools import partial

from contracts.runs.events import Asked, RunEvent
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, Say, action, answer, words


def _is_asked_by(stream: str, event: RunEvent) -> bool:
    return isinstance(event, Asked) and event.by.startswith(stream)


async def test_a_deadline_ends_a_run_while_all_model_slots_are_taken(plan: Plan, provider: ModelServer) -> None:
    """The run waits for its provider, and other runs stream meanwhile."""
    planner = await plan(planner_slots=1, planner_request_slots=1)
    slow = Say(text=answer(words(40)).text, pause_s=1)
    provider.say(Say(status=429, headers={"retry-after": "60"}), marker="the first")
    provider.say(action("look", q="x"), slow, slow)
    first = await planner.ask("the first", limits={"deadline_s": 4})
    await planner.until(first, lambda event: event.type == "model_failed")
    for asked_by in ("INBOX", "REQUESTS"):  # Once a tool has answered, the model is called for a message of INBOX.
        other = await planner.ask("another")
        await planner.until(other, partial(_is_asked_by, asked_by))
    story = await planner.ended(first, wait_s=10)
    assert (story.end.type, story.end.reason) == ("done", "budget_exhausted")
    assert story.end.warnings == ["budget exhausted: deadline_s of 4"]
