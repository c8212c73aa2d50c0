"""What the log says of a run: one line at its end, one for each request that failed, and nothing of what was said."""

from typing import Any

import structlog.testing

from tests.planner.conftest import Plan
from tests.planner.test_runs_approvals import paying
from tests.support.model_server import ModelServer, action, answer
from tests.support.run_services import MODEL
from tests.support.waiting import wait_until

SECRET = "the launch code is 4711"


async def run_and_lines(plan: Plan, limits: dict[str, Any] | None = None, **settings: Any) -> tuple[Any, list[Any]]:
    with structlog.testing.capture_logs() as lines:
        story = await (await plan(**settings)).tell(SECRET, limits=limits or {}, llm_context={"note": SECRET})
        # A listener may see the end before the planner knows that it is stored.
        await wait_until(lambda: any(line["event"] == "run_ended" for line in lines), what="the end is in the log")
    assert SECRET not in str(lines)
    return story, lines


def of(lines: list[Any], event: str) -> list[dict[str, Any]]:
    """The lines of an event, all at INFO."""
    found = [line for line in lines if line["event"] == event]
    assert all(line["log_level"] == "info" for line in found)
    return found


async def test_a_run_that_ended_leaves_one_line(plan: Plan, provider: ModelServer) -> None:
    """With what it cost, and how it ended."""
    provider.say(action("look", q=SECRET), action("fail", q=SECRET), answer(SECRET))
    story, lines = await run_and_lines(plan)
    [line] = of(lines, "run_ended")
    usage = story.end.usage
    assert line["run_id"] == story.run
    assert (line["tenant"], line["agent"], line["model"]) == ("default", "default", MODEL)
    assert (line["status"], line["code"], line["steps"]) == ("done", "answer_complete", 3)
    assert (line["prompt_tokens"], line["completion_tokens"]) == (usage.prompt_tokens, usage.completion_tokens)
    assert (line["model_calls"], line["tool_calls"], line["cost_usd"]) == (3, 2, None)
    assert line["ms"] > 0
    [call] = of(lines, "call_failed")
    assert call["code"] == "tool_error"


async def test_a_call_that_a_person_rejects_leaves_a_line(plan: Plan, provider: ModelServer) -> None:
    """No tool runner gets the call, so the planner logs it, without the note."""
    planning = await plan(paying([]))
    provider.say(action("pay", sum=5), answer("done"))
    with structlog.testing.capture_logs() as lines:
        run = await planning.ask()
        [pause] = await planning.paused(run)
        await planning.decide(pause, run, "reject", note=SECRET)
        await planning.ended(run)
    assert SECRET not in str(lines)
    [refused] = of(lines, "call_failed")
    assert (refused["tool"], refused["code"], refused["run_id"]) == ("pay", "rejected", run)
