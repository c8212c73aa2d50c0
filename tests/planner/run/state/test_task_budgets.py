"""A run and its tasks together never exceed the run's limits."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.inbox import TopUpRequested
from contracts.runs.payload import Usage
from contracts.sessions.tasks import Reservation
from services.planner.run.state.run import Run
from services.planner.run.state.task_budgets import so_far, with_settled
from tests.planner.task_world import UNASKED, TaskWorld, opening, spawn

PARTS = st.floats(0, 1)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("spawn"), st.integers(0, 300), PARTS),
        st.tuples(st.just("answer"), st.booleans(), PARTS),
        st.tuples(st.just("settle"), st.integers(0, 9), PARTS),
        st.tuples(st.just("top_up"), st.sampled_from(["max_tokens", "max_cost_usd", "max_tool_calls"]), PARTS),
    ),
    max_size=14,
)


def left(run: Run) -> dict[str, float]:
    """What of the limits is neither spent nor set aside."""
    limits = run.limits.model_dump(include={*so_far(run)}, exclude_none=True)
    return {name: limit - so_far(run)[name] for name, limit in limits.items()}


def within(reserved: Reservation, part: float) -> dict[str, Any]:
    """A spending of so much of what was set aside."""
    return {
        "model_calls": 1,
        "prompt_tokens": int((reserved.max_tokens or 0) * part),
        "cost_usd": (reserved.max_cost_usd or 0) * part,
        "tool_calls": int((reserved.max_tool_calls or 0) * part),
    }


@given(
    ACTS,
    st.fixed_dictionaries(
        {},
        optional={"max_tokens": st.integers(500, 5000), "max_cost_usd": st.floats(1, 9), "max_tool_calls": st.just(9)},
    ),
    st.floats(0.05, 1),
)
def test_what_is_set_aside_is_never_more_than_what_is_left(
    acts: list[tuple[str, Any, float]], limits: Mapping[str, Any], share: float
) -> None:
    """Whatever order spawns, answers, settlements and top-ups come in. A run's own call may exceed a limit, once."""
    world = TaskWorld()
    policy = UNASKED.model_copy(update={"budget_share": share})
    world.begin(opening(policy, max_steps=10_000, **limits), spawn(prompt_tokens=10, cost_usd=0.01))
    for act in acts:
        play(world, *act)


def play(world: TaskWorld, kind: str, what: Any, part: float) -> None:
    """Let something happen, and check what it leaves."""
    run = world.run
    if kind == "spawn" and run.open:
        world.answer(next(iter(run.open)))
    before, least = left(run), dict.fromkeys(left(run), 0.0)
    if kind == "spawn" and run.asked is not None:
        cost = part / 10
        world.reply(spawn(prompt_tokens=what, cost_usd=cost))
        own = {"max_tokens": what, "max_cost_usd": cost, "max_tool_calls": 1}
        least = {name: min(0, value - own[name]) for name, value in before.items()}
    elif kind == "answer" and run.open:
        world.answer(next(iter(run.open)), status="succeeded" if what else "failed", failure=FAULT)
        least = before
    elif kind == "settle" and run.set_aside:
        call_id = [*run.set_aside][what % len(run.set_aside)]
        world.settle(call_id, **within(run.set_aside[call_id], part))
        least = before
    elif kind == "top_up" and run.terminal is None:
        amount = {"max_tokens": 500, "max_cost_usd": 1.0, "max_tool_calls": 3}[what]
        world.handle(world.next_handling(TopUpRequested(id=f"t{world.messages}", limits={what: amount})))
        least = {name: amount if name == what else value for name, value in before.items()}
    else:
        return
    assert all(value >= least.get(name, 0) - 1e-9 for name, value in left(run).items())


FAULT = {"code": "too_many_tasks", "reason": "r"}


def test_an_unknown_cost_counts_as_all_that_was_set_aside() -> None:
    """A job's call costs nothing, which is known."""
    reserved = Reservation(max_cost_usd=0.5)
    assert with_settled(Usage(), reserved, Usage(model_calls=1, cost_usd=None)).cost_usd == 0.5
    assert with_settled(Usage(), reserved, Usage(tool_calls=1)).cost_usd == 0
