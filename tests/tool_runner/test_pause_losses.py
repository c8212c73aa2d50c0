"""Processes die around a tool's pause: no round is executed twice, no answer and no pause is lost."""

import pytest

from contracts.runs.inbox import CallPaused
from contracts.runs.pauses import PauseAnswer
from tests.support.forked import Forked
from tests.support.waiting import wait_until

from .conftest import Ledger, Planner, Start

ANSWER = PauseAnswer(number=0, decision="answer", input="window")
KINDS = pytest.mark.parametrize("kind", ["safely", "unsafely"])


async def paused(planner: Planner, run: str) -> CallPaused:
    """Return the pause of the first round, once it is in the run's inbox."""
    body = await wait_until(lambda: planner.inbox(run, "1-0-p0"), timeout=20, what="the pause is in the inbox")
    return CallPaused.model_validate_json(body)


async def answer(planner: Planner, ledger: Ledger, kind: str, run: str, seconds: float = 0) -> None:
    """Request the second round, as the planner does."""
    pause = await paused(planner, run)
    await planner.request(
        f"asks_{kind}_{ledger.suffix}", {"seconds": seconds}, run=run, round=1, answers=[ANSWER], state=pause.state
    )


async def ask(planner: Planner, ledger: Ledger, kind: str, seconds: float = 0) -> str:
    """Call a tool that pauses after some seconds, and return the run once the tool works."""
    run = await planner.request(f"asks_{kind}_{ledger.suffix}", {"seconds": seconds})
    await ledger.wrote("began")
    return run


@KINDS
async def test_everything_dies_while_a_person_is_asked(
    planner: Planner, start_runner: Start, ledger: Ledger, runner_process: Forked, kind: str
) -> None:
    """Another instance of the tool takes the answer, by another tool runner, as often as they die."""
    ledger.start()
    run = await ask(planner, ledger, kind)
    pause = await paused(planner, run)
    ledger.working().kill()
    runner_process.kill()
    await answer(planner, ledger, kind, run)
    ledger.start()
    await start_runner()
    assert (await planner.outcome(run, "1-0-r1")).observation == "window"
    assert pause.state == {"asked": True}
    assert [line.split()[3] for line in ledger.lines("began")] == ["0", "1"]
    assert len(ledger.lines("done")) == 1
