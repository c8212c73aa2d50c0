"""Letting a run spend more: what reaches the planner, and what is refused."""

from typing import Any

import pytest

from contracts.runs.events import Paused
from contracts.runs.inbox import INBOX_MESSAGE, TopUpRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.gateways import Served, Writer


async def top_ups(bus: Bus, run: str) -> list[TopUpRequested]:
    """What waits for the planner."""
    stored = await (await bus.reader(subjects.INBOX)).read(f"control.default.{run}.*")
    found = [INBOX_MESSAGE.validate_json(data) for _, data in stored]
    return [each for each in found if isinstance(each, TopUpRequested)]


async def top_up(served: Served, run: str, body: Any, key: str | None = None) -> tuple[int, dict[str, Any]]:
    """Ask for it; the status and the answer."""
    headers = {"Idempotency-Key": key} if key else {}
    answer = await served.http.post(f"/v1/runs/{run}/top-up", json=body, headers=headers)
    return answer.status_code, answer.json()


async def test_a_top_up_is_stored_for_the_planner(served: Served, bus: Bus, writer: Writer) -> None:
    """Only what the caller set; each request counts."""
    await writer.open()
    body = {"limits": {"max_steps": 5, "max_tokens": None, "max_parallel": None}}
    for _ in range(2):
        status, answer = await top_up(served, writer.run, body)
        assert (status, answer["status"]) == (202, "running")
    found = await top_ups(bus, writer.run)
    assert [top_up.limits for top_up in found] == [{"max_steps": 5, "max_tokens": None}] * 2
    assert found[0].id != found[1].id


async def test_a_repeated_top_up_counts_once(served: Served, bus: Bus, writer: Writer) -> None:
    """Under the same key; the planner knows it by its id for ever."""
    await writer.open()
    for _ in range(2):
        assert (await top_up(served, writer.run, {"limits": {"max_steps": 5}}, "again"))[0] == 202
    assert len({top_up.id for top_up in await top_ups(bus, writer.run)}) == 1


async def test_a_paused_run_names_its_budget(served: Served, writer: Writer) -> None:
    """While it is paused, and no longer."""
    await writer.open()
    assert (await served.http.get(f"/v1/runs/{writer.run}")).json()["paused"] is None
    await writer.log(Paused(budget="max_steps of 2", until=2_000_000_000_000))
    found = (await served.http.get(f"/v1/runs/{writer.run}")).json()
    assert (found["status"], found["waits"], found["paused"]) == ("running", "paused", "max_steps of 2")
    await writer.done()
    assert (await served.http.get(f"/v1/runs/{writer.run}")).json()["paused"] is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"limits": {}},
        {"limits": {"max_steps": 0}},
        {"limits": {"max_steps": "5"}},
        {"limits": {"steps": 5}},
        {"limits": None},
        [],
        {"max_steps": 5},
    ],
)
async def test_an_invalid_top_up_is_refused(served: Served, bus: Bus, writer: Writer, body: Any) -> None:
    """With the field."""
    await writer.open()
    status, answer = await top_up(served, writer.run, body)
    assert (status, answer["code"]) == (422, "invalid_input")
    assert await top_ups(bus, writer.run) == []


async def test_only_a_run_that_goes_on_can_be_topped_up(served: Served, bus: Bus, writer: Writer) -> None:
    """Neither one that has not begun nor one that has ended; an unknown one is unknown."""
    queued = (await served.http.post("/v1/runs", json={"query": "x"})).json()["run_id"]
    await writer.open()
    await writer.done()
    for run in (queued, writer.run):
        status, answer = await top_up(served, run, {"limits": {"max_steps": 5}})
        assert (status, answer["code"]) == (409, "not_running")
        assert await top_ups(bus, run) == []
    assert (await top_up(served, new_id(), {"limits": {"max_steps": 5}}))[0] == 404
