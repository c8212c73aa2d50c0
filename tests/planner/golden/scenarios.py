"""The scenarios of the golden journals: one run each, with the replies of its model and what happens meanwhile."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.model_server import Say, action, answer, words
from tests.support.run_services import Planning

LOOK, FINAL = action("look", q="x"), answer("whole")
USAGE = {"prompt_tokens": 30, "completion_tokens": 10}
OVERFLOW = Say(
    status=400,
    error={"message": "This model's maximum context length is 10 tokens.", "code": "context_length_exceeded"},
)
BROKEN = Say(text=answer(words(30)).text, cut_after=9)
OTHER = "openai/other"

Act = Callable[[Planning, str], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """A run: `replies` of its model, `ask` (the request), `settings`, `act` (what else happens), `killed` planners."""

    replies: tuple[Say, ...]
    ends: str = "answer_complete"
    """The reason of its `done`, or the code or type of its end."""
    ask: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    act: Act | None = None
    killed: bool = False
    """The first planner ends while its model sends nothing; another one takes over."""


def plan(*calls: tuple[str, dict[str, str]], **more: Any) -> Say:
    """A plan: its branches, and what else it says."""
    return action("parallel", steps=[{"node": tool, "args": args} for tool, args in calls], **more)


NORTH, SOUTH, FAIL = ("look", {"q": "north"}), ("look", {"q": "south"}), ("fail", dict[str, str]())


def style(name: str) -> tuple[Say, ...]:
    """The replies of a scripted model with habits of its own."""
    found = json.loads((Path(__file__).parents[1] / "styles" / f"{name}.json").read_text())
    return tuple(Say(**reply) for reply in found["replies"])


def _cancelled(after: str) -> Act:
    async def act(planning: Planning, run: str) -> None:
        await planning.until(run, lambda event: event.type == after)
        await planning.cancel(run)

    return act


def _topped_up(**limits: Any) -> Act:
    async def act(planning: Planning, run: str) -> None:
        await planning.until(run, lambda event: event.type == "paused")
        await planning.top_up(run, **limits)

    return act


async def _topped_up_before(planning: Planning, run: str) -> None:
    await planning.until(run, lambda event: event.type == "asked")
    await planning.top_up(run, max_steps=9)


def native(name: str, **args: Any) -> Say:
    return Say(tool_calls=[{"name": name, "arguments": json.dumps(args)}])


def final(**args: Any) -> Say:
    return Say(text=json.dumps({"next_node": "final_response", "args": args}))


SCENARIOS: dict[str, Scenario] = {
    # Answers.
    "answer": Scenario((FINAL,)),
    "long_answer": Scenario((answer(words(300)),)),
    "answer_with_everything": Scenario(
        (
            answer(
                "yes",
                confidence=0.8,
                language="en",
                suggested_actions=[{"id": "a", "label": "Go on"}],
                requires_followup=True,
            ),
        )
    ),
    "answer_asked_for_alone": Scenario((final(confidence=0.5), Say(text="Here it is.", piece=3))),
    "answer_restated": Scenario(
        (final(), Say(text='Well: {"next_node": "final_response", "args": {"answer": "yes."}}'))
    ),
    "reasoning": Scenario(style("reasoning"), ask={"tools": ["look", "merge"]}, settings={"action_format": "legacy"}),
    # Tools.
    "one_call": Scenario((LOOK, FINAL)),
    "failing_call": Scenario((action("fail"), FINAL)),
    "many_steps": Scenario((LOOK, action("look", q="y"), action("look", q="z"), FINAL)),
    "parallel": Scenario((plan(NORTH, SOUTH), FINAL)),
    "parallel_with_a_failure": Scenario((plan(NORTH, FAIL), FINAL)),
    "parallel_one_at_a_time": Scenario((plan(NORTH, SOUTH), FINAL), ask={"limits": {"max_parallel": 1}}),
    "join": Scenario((plan(NORTH, SOUTH, join={"node": "merge", "inject": {"results": "$results"}}), FINAL)),
    "join_with_a_failed_branch": Scenario((plan(NORTH, FAIL, join={"node": "merge"}), FINAL)),
    "join_of_nothing": Scenario((plan(NORTH, SOUTH, join={"node": "nobody"}), FINAL)),
    # Native tool calls.
    "native": Scenario(style("native"), ask={"tools": ["look", "merge"]}, settings={"action_transport": "tools"}),
    "native_repair": Scenario(
        (native("nobody"), native("final_response", answer="whole")), settings={"action_transport": "tools"}
    ),
    # Repairs.
    "weak_model": Scenario(style("weak"), ask={"tools": ["look", "merge"]}),
    "unknown_tool": Scenario((action("nobody"), FINAL)),
    "wrong_arguments": Scenario((action("look"), LOOK, FINAL)),
    "no_json": Scenario((Say(text="{"), FINAL)),
    "prose_at_last": Scenario((Say(text="I only speak prose."),)),
    "no_path": Scenario((Say(text='{"next_node": "look", "args": {}}'),), ends="no_path"),
    # Providers.
    "provider_retry": Scenario((Say(status=503), FINAL)),
    "provider_fallback": Scenario(
        (Say(status=500), Say(status=500), Say(status=500), FINAL), settings={"fallback_models": [OTHER]}
    ),
    "broken_reply": Scenario((BROKEN, FINAL)),
    "refusal": Scenario((Say(status=400),), ends="model_refused"),
    "compacted": Scenario((LOOK, OVERFLOW, FINAL)),
    "compacted_before": Scenario(
        (*(action("look", q=words(400 + n)) for n in range(4)), FINAL), settings={"max_context_tokens": 2000}
    ),
    # Judgement.
    "triage": Scenario(
        (Say(text='{"effort": "high"}'), LOOK, FINAL),
        settings={"reasoning_effort": "auto", "model_reasoning": {"openai/scripted": True}},
    ),
    "critique_and_revision": Scenario(
        (
            answer("poor"),
            Say(text='{"score": 0.2, "feedback": "too short"}'),
            answer("rich"),
            Say(text='{"score": 0.9, "feedback": ""}'),
        ),
        ask={"agent": "judged"},
        settings={"agents": {"judged": {"reflection": {"threshold": 0.7, "max_revisions": 1}}}},
    ),
    # Budgets, pauses, top-ups.
    "max_steps": Scenario((LOOK,), "budget_exhausted", ask={"limits": {"max_steps": 2}}),
    "max_tool_calls": Scenario((LOOK,), "budget_exhausted", ask={"limits": {"max_tool_calls": 1}}),
    "max_tokens": Scenario((Say(text=LOOK.text, usage=USAGE),), "budget_exhausted", ask={"limits": {"max_tokens": 41}}),
    "deadline": Scenario((LOOK, Say(silent=True)), "budget_exhausted", ask={"limits": {"deadline_s": 1}}),
    "pause_and_top_up": Scenario(
        (LOOK, LOOK, FINAL), ask={"limits": {"max_steps": 1, "grace_s": 20}}, act=_topped_up(max_steps=9)
    ),
    "pause_of_a_deadline": Scenario(
        (LOOK, Say(silent=True), FINAL), ask={"limits": {"deadline_s": 1, "grace_s": 20}}, act=_topped_up(deadline_s=30)
    ),
    "pause_that_ends": Scenario((LOOK,), "budget_exhausted", ask={"limits": {"max_steps": 1, "grace_s": 1}}),
    "top_up_before": Scenario(
        (Say(text=LOOK.text, delay_s=0.5), LOOK, FINAL), ask={"limits": {"max_steps": 2}}, act=_topped_up_before
    ),
    # Ends from outside.
    "cancelled": Scenario((LOOK, Say(silent=True)), "cancelled", act=_cancelled("observed")),
    "cancelled_in_a_pause": Scenario(
        (LOOK,), "cancelled", ask={"limits": {"max_steps": 1, "grace_s": 20}}, act=_cancelled("paused")
    ),
    "planner_killed": Scenario((LOOK, Say(silent=True), FINAL), killed=True),
    # Images, which the log holds as references.
    "images": Scenario((LOOK, FINAL), settings={"model_vision": {"openai/scripted": True}}, ask={"images": 2}),
    "images_dropped": Scenario((FINAL,), settings={"vision": "lenient"}, ask={"images": 1}),
    "images_refused": Scenario((FINAL,), "vision_unsupported", ask={"images": 1}),
}
