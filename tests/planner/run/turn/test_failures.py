"""What follows a failed request: tries, waits, fallbacks and ends, without a server."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.runs.events import Asked, Error, ModelFailed
from contracts.runs.payload import Usage
from contracts.wire.faults import Code, Fault
from services.planner.run.commands import Ack, Ask, Open, Rules, SetTimer, Wait
from services.planner.run.turn.decide import MAX_FIELDS_REFUSED
from services.planner.run.turn.decision import Decision, Failed
from tests.planner.run_world import World, final, started

MAIN, SPARE = "openai/main", "openai/spare"
NOW = 2000


def failed(code: Code = "model_failed", reason: str = "503", *, retryable: bool = True, **more: Any) -> Failed:
    fault = Fault(code=code, reason=reason, retryable=retryable)
    return Failed(fault=fault, usage=Usage(model_calls=1, cost_usd=0.0), **more)


BROKEN, BUSY = failed(), failed("model_rate_limited", "429")


def rules_with(**changed: Any) -> Rules:
    return replace(World().rules, **changed)


def world_after(*replies: Decision, fallbacks: tuple[str, ...] = (SPARE,), **rules: Any) -> World:
    """A run whose model replies like that, and then no more."""
    world = World(rules=rules_with(**rules))
    opening = started().model_copy(update={"model": MAIN, "fallbacks": list(fallbacks)})
    world.play(world.handling("REQUESTS:1", started=opening), *replies)
    return world


def waits(world: World) -> list[tuple[str, str, float]]:
    """What followed each failure."""
    return [(each.then, each.next_model, each.wait_s) for each in world.of(ModelFailed)]


def test_waits_double_and_the_next_model_is_called_at_once() -> None:
    """Two retries of each model; half of a wait is random."""
    world = world_after(*[replace(BROKEN, chance=1.0)] * 2, BUSY, replace(BUSY, chance=0.0))
    assert waits(world) == [
        ("retry", MAIN, 0.5),
        ("retry", MAIN, 1.0),
        ("fallback", SPARE, 0.0),
        ("retry", SPARE, 0.25),
    ]
    assert [asked.model for asked in world.of(Asked)] == [MAIN, MAIN, MAIN, SPARE, SPARE]
    assert [asked.cause for asked in world.of(Asked)] == ["turn"] + ["provider"] * 4
    assert world.run.usage.model_calls == 4


@pytest.mark.parametrize(
    ("pause_s", "fallbacks", "expected"),
    [
        (9, (SPARE,), ("retry", MAIN, 9)),
        (0.001, (SPARE,), ("retry", MAIN, 0.25)),
        (3600, (SPARE,), ("fallback", SPARE, 0.0)),
        (60, (), ("retry", MAIN, 60)),
    ],
)
def test_a_pause_that_the_provider_asks_for(
    pause_s: float, fallbacks: tuple[str, ...], expected: tuple[str, str, float]
) -> None:
    """It wins over a shorter one; an hour is not waited for while there is another model."""
    assert waits(world_after(replace(BUSY, retry_after_s=pause_s), fallbacks=fallbacks)) == [expected]


def test_what_only_another_model_can_do_goes_to_it_at_once() -> None:
    """Such as a request without a key; a refusal goes nowhere."""
    world = world_after(failed(retryable=False, elsewhere=True), failed("model_refused", "no", retryable=False))
    assert waits(world) == [("fallback", SPARE, 0.0)]
    assert isinstance(world.run.terminal, Error)
    assert (world.run.terminal.code, world.run.terminal.error) == ("model_refused", "no")


@pytest.mark.parametrize("code", ["response_format_refused", "field_refused"])
def test_a_refused_field_is_no_try(code: Code) -> None:
    """One after the other is left out, at once; beyond a number of them they count like any failure."""
    refused = failed(code)
    world = world_after(refused, refused, final(), max_provider_failures=0)
    assert waits(world) == [("retry", MAIN, 0.0)] * 2
    assert world.types()[-1] == "done"
    world = world_after(*[refused] * (MAX_FIELDS_REFUSED + 2), fallbacks=(), max_provider_failures=1)
    assert [then for then, _, _ in waits(world)] == ["retry"] * (MAX_FIELDS_REFUSED + 1)
    assert isinstance(world.run.terminal, Error)


def test_a_short_wait_is_taken_over_and_not_begun_again() -> None:
    """By the next handling of the message: to the recorded time, without a further attempt."""
    world = World()
    handling = world.handling("REQUESTS:1", started=started())
    world.play(handling)
    handling.decision = replace(BUSY, retry_after_s=1.5)
    assert world.handle(handling, until=Wait)[-1] == Wait(NOW + 1500)  # The process dies here.
    again = world.handling("REQUESTS:1", holder="second", now=NOW + 1000, opened=True, started=started())
    assert world.handle(again, until=Wait) == [Wait(NOW + 1500)]
    again.now = NOW + 1500
    assert isinstance(world.handle(again)[-1], Ask)
    asked = world.of(Asked)[-1]
    assert (asked.attempt, asked.cause, asked.by, asked.holder) == (2, "provider", "REQUESTS:1", "second")


def test_a_long_wait_is_a_timer() -> None:
    """The message is acknowledged; the one that the timer wakes the run with asks."""
    world = World()
    moves = world.play(world.handling("REQUESTS:1", started=started()), replace(BUSY, retry_after_s=10))
    assert moves[-3:] == [SetTimer("retry", NOW + 10_000), Open(), Ack()]
    moves = world.play(world.handling("INBOX:1", "resumed", holder="b", now=NOW + 3000))
    assert moves == [SetTimer("retry", NOW + 10_000), Ack()]
    moves = world.play(world.handling("INBOX:2", "resumed", holder="c", now=NOW + 10_000))
    assert isinstance(moves[-1], Ask)
