"""Pages of a tenant's runs."""

from typing import Any

import pytest

from contracts.runs.events import Paused
from contracts.runs.requests import RunStatus
from contracts.wire import keys
from contracts.wire.names import new_id, unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.runs import index as gateway_module
from services.gateway.runs.index import Index
from services.gateway.runs.reader import Deletions, RunReader
from services.gateway.sessions.reader import SessionReader
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.support.buses import provisioned
from tests.support.gateways import Served, Writer, paused, serving_as
from tests.support.nats_server import NatsServer


async def index(bus: Bus, tenant: str, count: int, at: int = 1_700_000_000_000) -> list[str]:
    """Fill the index as the planner does; ids in the order of the requests."""
    made = []
    for number in range(count):
        run = new_id()
        state = "running" if number % 3 == 0 else "done"
        await enter(bus, tenant, RunStatus(run_id=run, status=state, query=f"q{number}", requested_at=at + number))
        made.append(run)
    return made


async def enter(bus: Bus, tenant: str, entry: RunStatus) -> None:
    """Write one entry, without a look at what was there."""
    subject = f"$KV.{keys.RUNS_BUCKET}.{keys.run_key(tenant, entry.requested_at, entry.run_id)}"
    await bus.publish(subject, entry.model_dump_json().encode())


async def listed(served: Served, **query: Any) -> tuple[list[str], int]:
    """All pages: the runs and how many pages they took."""
    found: list[str] = []
    pages = 0
    while True:
        answer = await served.http.get("/v1/runs", params=query)
        assert answer.status_code == 200, answer.text
        found += [run["run_id"] for run in answer.json()["runs"]]
        pages += 1
        if (cursor := answer.json()["next_cursor"]) is None:
            return found, pages
        query["cursor"] = cursor


async def test_runs_are_listed_newest_first_page_by_page(shared_nats: NatsServer, bus: Bus) -> None:
    """Each once, whatever the size of a page; another tenant's not at all."""
    async with serving_as(shared_nats.url, "lister") as served:
        assert await listed(served) == ([], 1)
        made = await index(bus, "lister", 23)
        await index(bus, "somebody-else", 2)
        for limit, pages in ((1, 23), (7, 4), (23, 1), (100, 1)):
            assert await listed(served, limit=limit) == (made[::-1], pages)
        running = [run for number, run in enumerate(made) if number % 3 == 0]
        assert (await listed(served, status="running", limit=3))[0] == running[::-1]
        assert (await listed(served, status="error"))[0] == []


def index_of(bus: Bus) -> Index:
    deletions = Deletions(bus)
    runs = RunReader(bus, deletions)
    return Index(bus, runs, SessionReader(bus, runs, deletions))


async def test_a_new_run_does_not_shift_pages(bus: Bus) -> None:
    """A cursor is a key, not an offset."""
    gateway_index = index_of(bus)
    made = await index(bus, "pager", 6)
    first, cursor = await gateway_index.page(RunStatus, Caller(tenant="pager"), 3)
    await enter(bus, "pager", RunStatus(run_id=new_id(), status="running", requested_at=1_800_000_000_000))
    second, end = await gateway_index.page(RunStatus, Caller(tenant="pager"), 3, cursor)
    assert [run.run_id for run in (*first, *second)] == made[::-1]
    assert end is None


async def test_invalid_entries_are_left_out(bus: Bus) -> None:
    """A marker of a deleted key, and what another version wrote."""
    made = await index(bus, "odd", 2)
    await bus.publish(f"$KV.runs.{keys.run_key('odd', 1, new_id())}", b"{}")
    await bus.publish(f"$KV.runs.{keys.run_key('odd', 2, new_id())}", b"", {"KV-Operation": "DEL"})
    await bus.publish("$KV.runs.odd.not-a-key", b"{}")
    runs, cursor = await index_of(bus).page(RunStatus, Caller(tenant="odd"), 10)
    assert ([run.run_id for run in runs], cursor) == (made[::-1], None)


async def test_entries_vanish_without_a_marker_change_and_come_back(bus: Bus) -> None:
    """What is known of the bucket only proposes: a purged run is gone, and one that has ended runs no longer."""
    bucket, gateway_index, caller = Bucket(bus, keys.RUNS_BUCKET), index_of(bus), Caller(tenant="changing")
    made = await index(bus, caller.tenant, 4)
    assert await shown(gateway_index, caller) == made[::-1]
    await bucket.purge(keys.run_key(caller.tenant, 1_700_000_000_001, made[1]))
    await enter(bus, caller.tenant, RunStatus(run_id=made[0], status="done", requested_at=1_700_000_000_000))
    assert await shown(gateway_index, caller) == [made[3], made[2], made[0]]
    assert await shown(gateway_index, caller, status="running") == [made[3]]
    gateway_index._forget()  # As after a reconnect.
    assert await shown(gateway_index, caller) == [made[3], made[2], made[0]]


async def shown(gateway_index: Index, caller: Caller, limit: int = 3, **wanted: str | None) -> list[str]:
    """The runs of all pages, short ones too."""
    found: list[str] = []
    cursor = None
    for _ in range(100):
        runs, cursor = await gateway_index.page(RunStatus, caller, limit, cursor, **wanted)
        found += [run.run_id for run in runs]
        if cursor is None:
            return found
    raise AssertionError("the pages do not end")


async def test_short_pages_show_each_run_once(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little work per request, other tenants' entries and gaps between, and runs that others wrote meanwhile."""
    monkeypatch.setattr(gateway_module, "MAX_ENTRIES_READ", 60)
    monkeypatch.setattr(gateway_module, "_MIN_WINDOW_COST", 5)
    monkeypatch.setattr(gateway_module, "_PAGE_ENTRIES", 20)
    caller, made = Caller(tenant="short"), list[str]()
    for number in range(3):
        made += await index(bus, caller.tenant, 30, at=unix_ms() - 40_000 + 10_000 * number)
        await index(bus, f"other-{number}", 90)
        await Bucket(bus, keys.RUNS_BUCKET).purge(f"other-{number}.*")
    gateway_index = index_of(bus)
    assert await shown(gateway_index, caller, 7) == made[::-1]
    running = [run for number, run in enumerate(made) if number % 30 % 3 == 0]
    assert await shown(gateway_index, caller, 7, status="running") == running[::-1]
    await index(bus, "other-3", 70)  # More than a request reads: it begins anew.
    made += await index(bus, caller.tenant, 2, at=unix_ms())
    assert await shown(gateway_index, caller, 7) == made[::-1]


async def test_a_pinned_key_reads_its_users_runs_only(bus: Bus) -> None:
    """And no other user's, whatever it asks for."""
    made = await index(bus, "pinned", 6)
    gateway_index, ann = index_of(bus), Caller(tenant="pinned", user_id="ann")
    assert await shown(gateway_index, ann) == []
    anns = RunStatus(run_id=made[2], status="done", requested_at=1_700_000_000_002, user_id="ann")
    await enter(bus, "pinned", anns)
    assert await shown(gateway_index, ann) == [made[2]]
    assert await shown(gateway_index, ann, user_id="ann") == [made[2]]
    assert await shown(gateway_index, ann, user_id="bob") == []
    assert await shown(gateway_index, Caller(tenant="pinned"), user_id="bob") == []


async def test_a_page_costs_as_much_whatever_is_kept(bus: Bus, shared_nats: NatsServer) -> None:
    """Counted in messages, for a page, its next one, and filters that match little or nothing."""
    async with provisioned(shared_nats.url) as own:
        gateway_index, caller = index_of(own), Caller(tenant="counted")
        counts = []
        for number in (100, 1500):
            await index(bus, caller.tenant, number, at=unix_ms())
            assert len(await shown(gateway_index, caller, 100)) >= number  # Now everything is known.
            received = []
            for wanted in ({}, {"status": "running"}, {"status": "error"}, {"user_id": "nobody", "agent": "default"}):
                before = own.received
                runs, cursor = await gateway_index.page(RunStatus, caller, 10, **wanted)
                _, _ = await gateway_index.page(RunStatus, caller, 10, cursor, **wanted)
                received.append((len(runs), own.received - before))
            counts.append(received)
        assert counts[0] == counts[1]
        assert counts[1][2][1] <= 4


async def test_what_waits_is_found_among_what_works(shared_nats: NatsServer, bus: Bus) -> None:
    """Of 1,000 runs the three that wait are read, and nothing of the others: counted in messages."""
    async with serving_as(shared_nats.url, "waits") as served:
        waiting = [Writer(bus, "waits") for _ in range(3)]
        for number, writer in enumerate(waiting):
            await writer.open()
            await writer.log(Paused(budget="max_steps", until=2_000_000_000_000) if number else paused("1-1", 1))
            at, waits = 1_700_000_000_000 + number, "paused" if number else "waiting"
            await enter(bus, "waits", RunStatus(run_id=writer.run, status="running", waits=waits, requested_at=at))
        costs = []
        for count in (0, 1000):
            await index(bus, "waits", count, at=1_800_000_000_000)
            await served.http.get("/v1/runs?status=error")  # All is known.
            before = served.parts.bus.received
            runs = (await served.http.get("/v1/runs?waits=true")).json()["runs"]
            costs.append(served.parts.bus.received - before)
            assert [run["run_id"] for run in runs] == [writer.run for writer in waiting[::-1]]
            of_budget = ("paused", "max_steps", 0)
            shown = [(run["waits"], run["paused"], len(run["pauses"])) for run in runs]
            assert shown == [of_budget, of_budget, ("waiting", None, 1)]
        assert costs[0] == costs[1]
        await waiting[2].done()
        assert len((await served.http.get("/v1/runs?waits=true")).json()["runs"]) == 2
