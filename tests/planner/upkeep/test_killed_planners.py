"""A planner that is killed between any two steps of a fire time, or was not there: another one finishes it, once."""

import pytest

from contracts.runs.inbox import ScheduleDue
from contracts.sessions.schedules import Schedule
from contracts.wire import subjects
from contracts.wire.names import started_run_id, unix_ms
from tests.planner.upkeep.written import schedule_of, send, store, stored, timer_of
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.waiting import wait_until

STEPS = {
    "before the request": ("Now?", "before", "request"),
    "after the request, whose acknowledgement is lost": ("Now?", "stored", "request"),
    "before the entry": ('"last_run":"', "before", "$KV"),
    "after the entry": ('"last_run":"', "stored", "$KV"),
    "before the next timer": ("schedule_due", "before", "timer"),
    "before the acknowledgement": ("schedule_due", "known", "timer"),
}


async def runs_of(client: Planning) -> list[str]:
    return [subject.split(".")[2] for subject in await client.bus.subjects_in(subjects.RUNS, subjects.log.all)]


async def fired(client: Planning, schedule: Schedule) -> Schedule:
    """The schedule once its run has been entered and its next timer is set."""

    async def is_done() -> bool:
        found = await stored(client.bus, schedule)
        return found is not None and bool(found.last_run) and await timer_of(client.bus, schedule) == found.next_at

    await wait_until(is_done, timeout=60, what="the schedule has fired")
    found = await stored(client.bus, schedule)
    assert found is not None
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_planner_leaves_a_fire_time_to_another(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, step: str
) -> None:
    """One run for the fire time, and the next timer, wherever it died."""
    provider.say(*(answer("Done.") for _ in range(3)))
    url, at = own_nats_server.url, unix_ms()
    dying = DyingPlanner(url, provider.url, *STEPS[step])
    schedule = await store(client.bus, schedule_of(cron="0 0 1 1 *", at=at, missed="run_once"))
    await send(client.bus, schedule, ScheduleDue(at=at))
    await dying.dead()
    async with planning(url, provider):
        after = await fired(client, schedule)
        run = started_run_id("default", schedule.schedule_id, at)
        assert after.last_run == run
        assert (await client.ended(run)).end.type == "done"
        assert await runs_of(client) == [run]
