"""Timers reach the control consumer: they end a run in time, whatever waits for models, and outlive an upgrade."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from contracts.runs.events import Asked, RunEvent
from contracts.wire import subjects
from services.messaging.connection import Bus
from services.messaging.direct_get import sequence_of
from services.messaging.streams.definitions import STREAMS
from services.messaging.streams.provision import missing, provision
from tests.planner.conftest import TOOLS, Plan
from tests.support.buses import connected
from tests.support.model_server import ModelServer, Say, action, answer, words
from tests.support.nats_server import NatsServer
from tests.support.run_services import planning, tools_at_work
from tests.support.waiting import wait_until

DUE_IN_INBOX = subjects.DUE_IN_CONTROL.replace("control.", "inbox.")


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


def _earlier_version() -> list[dict[str, Any]]:
    """INBOX put what was due on the subjects of the consumer that calls models."""
    streams = json.loads(json.dumps(STREAMS).replace(subjects.DUE_IN_CONTROL, DUE_IN_INBOX))
    return list(streams)


async def _log(bus: Bus, run: str) -> int:
    newest = await bus.last(subjects.RUNS, subjects.log("default", run))
    assert newest is not None
    return sequence_of(newest)


async def _waiting(bus: Bus) -> dict[str, int]:
    info = await bus.api("STREAM.INFO.INBOX", {"subjects_filter": ">"})
    return dict(info["state"].get("subjects") or {})


async def test_timers_of_an_earlier_version_are_neither_lost_nor_repeated(
    own_nats_server: NatsServer, provider: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One had fired and was handled, one had fired and waits in INBOX, one is still to fire."""
    url, look = own_nats_server.url, action("look", q="x")
    provider.reset()
    provider.say(look, look, look)
    runs = {}
    with monkeypatch.context() as patch:
        patch.setattr("services.messaging.streams.provision.STREAMS", _earlier_version())
        async with planning(url, provider, folder=tmp_path) as planner, tools_at_work(planner, url, TOOLS):
            for grace_s in (1, 3, 12):
                runs[grace_s] = await planner.ask(limits={"max_steps": 1, "grace_s": grace_s})
                await planner.until(runs[grace_s], lambda event: event.type == "paused")
            before = await planner.ended(runs[1])
    async with connected(url) as bus:
        due = subjects.inbox("default", runs[3], "pause")

        async def has_fired() -> bool:
            return due in await _waiting(bus)

        await wait_until(has_fired, what="a timer has fired into INBOX")
        handled = await _log(bus, runs[1])
        fired = await bus.last(subjects.INBOX, due)
        assert fired is not None
        await provision(bus)
        assert await missing(bus) == []
        # Depending on what INBOX holds, NATS reads a changed source again: fired messages may arrive a second time.
        await bus.publish(subjects.control("default", runs[3], "pause"), fired.data)
    async with planning(url, provider, folder=tmp_path) as planner:
        for run in (runs[3], runs[12]):
            story = await planner.ended(run)
            assert story.facts()[-2:] == ["paused", "done"]

        async def all_are_handled() -> bool:
            return not await _waiting(planner.bus)

        await wait_until(all_are_handled, what="nothing waits in INBOX")
        assert await _log(planner.bus, runs[1]) == handled
        assert (await planner.ended(runs[1])).facts() == before.facts()
