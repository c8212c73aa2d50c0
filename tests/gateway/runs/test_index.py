"""Pages of a tenant's runs."""

from typing import Any

from contracts.runs.requests import RunStatus
from contracts.wire import keys
from contracts.wire.names import new_id
from services.gateway.auth.caller import Caller
from services.gateway.auth.key_lines import new_key
from services.gateway.runs.deletions import Deletions
from services.gateway.runs.index import RunIndex
from services.messaging.connection import Bus
from tests.support.gateways import Served, serving
from tests.support.nats_server import NatsServer


async def index(bus: Bus, tenant: str, count: int) -> list[str]:
    """Fill the index as the planner does; ids in the order of the requests."""
    made = []
    for number in range(count):
        run = new_id()
        state = "running" if number % 3 == 0 else "done"
        entry = RunStatus(run_id=run, status=state, query=f"q{number}", requested_at=1_700_000_000_000 + number)
        subject = f"$KV.{keys.RUNS_BUCKET}.{keys.run_key(tenant, entry.requested_at, run)}"
        await bus.publish(subject, entry.model_dump_json().encode())
        made.append(run)
    return made


async def listed(served: Served, headers: dict[str, str], **query: Any) -> tuple[list[str], int]:
    """All pages: the runs and how many pages they took."""
    found: list[str] = []
    pages = 0
    while True:
        answer = await served.http.get("/v1/runs", params=query, headers=headers)
        assert answer.status_code == 200, answer.text
        found += [run["run_id"] for run in answer.json()["runs"]]
        pages += 1
        if (cursor := answer.json()["next_cursor"]) is None:
            return found, pages
        query["cursor"] = cursor


async def test_runs_are_listed_newest_first_page_by_page(shared_nats: NatsServer, bus: Bus) -> None:
    """Each once, whatever the size of a page; another tenant's not at all."""
    key, line = new_key("lister")
    headers = {"Authorization": f"Bearer {key}"}
    async with serving(shared_nats.url, api_keys=line) as served:
        assert await listed(served, headers) == ([], 1)
        made = await index(bus, "lister", 23)
        await index(bus, "somebody-else", 2)
        for limit, pages in ((1, 23), (7, 4), (23, 1), (100, 1)):
            assert await listed(served, headers, limit=limit) == (made[::-1], pages)
        running = [run for number, run in enumerate(made) if number % 3 == 0]
        assert (await listed(served, headers, status="running", limit=3))[0] == running[::-1]
        assert (await listed(served, headers, status="error"))[0] == []


async def test_a_new_run_does_not_shift_pages(bus: Bus) -> None:
    """A cursor is a key, not an offset."""
    gateway_index = RunIndex(bus, Deletions(bus))
    made = await index(bus, "pager", 6)
    first, cursor = await gateway_index.page(Caller(tenant="pager"), 3)
    entry = RunStatus(run_id=new_id(), status="running", requested_at=1_800_000_000_000)
    await bus.publish(
        f"$KV.runs.{keys.run_key('pager', entry.requested_at, entry.run_id)}", entry.model_dump_json().encode()
    )
    second, end = await gateway_index.page(Caller(tenant="pager"), 3, cursor)
    assert [run.run_id for run in (*first, *second)] == made[::-1]
    assert end is None


async def test_invalid_entries_are_left_out(bus: Bus) -> None:
    """A marker of a deleted key, and what another version wrote."""
    made = await index(bus, "odd", 2)
    await bus.publish(f"$KV.runs.{keys.run_key('odd', 1, new_id())}", b"{}")
    await bus.publish(f"$KV.runs.{keys.run_key('odd', 2, new_id())}", b"", {"KV-Operation": "DEL"})
    await bus.publish("$KV.runs.odd.not-a-key", b"{}")
    runs, cursor = await RunIndex(bus, Deletions(bus)).page(Caller(tenant="odd"), 10)
    assert ([run.run_id for run in runs], cursor) == (made[::-1], None)
