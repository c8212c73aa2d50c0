"""One tenant cannot fill the place with its runs (docs/http.md)."""

import hashlib
from contextlib import AsyncExitStack

import pytest

from contracts.runs.inbox import TimerFired
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.gateway.auth.caller import Caller
from services.gateway.errors import TooManyRuns
from services.gateway.runs import quota
from services.gateway.runs.quota import RunQuota, open_runs
from services.gateway.runs.reader import Deletions, RunReader
from services.messaging.connection import Bus
from services.messaging.streams import provision
from tests.support.buses import provisioned
from tests.support.gateways import serving
from tests.support.nats_server import NatsServer

ACME = Caller(tenant="acme")


async def test_open_runs_are_counted_and_others_refused(own_nats_server: NatsServer) -> None:
    """Queued and running ones count once; a repeated request is not a new run; each tenant has its own quota."""
    keys = ",".join(f"{tenant} {hashlib.sha256(tenant.encode()).hexdigest()}" for tenant in ("acme", "other"))
    async with (
        provisioned(own_nats_server.url) as bus,
        serving(own_nats_server.url, max_open_runs=3, api_keys=keys) as gateway,
    ):
        running = new_id()
        headers = {
            "Nats-Schedule": "@at 2100-01-01T00:00:00Z",
            "Nats-Schedule-Target": subjects.due("acme", running, "deadline"),
        }
        body = TimerFired(timer="deadline", at=1).model_dump_json().encode()
        await bus.publish(subjects.timer("acme", running, "deadline"), body, headers)

        async def ask(tenant: str, key: str) -> int:
            answer = await gateway.http.post(
                "/v1/runs", json={"query": "q"}, headers={"Authorization": f"Bearer {tenant}", "Idempotency-Key": key}
            )
            if answer.status_code == 429:
                assert answer.json()["code"] == "too_many_runs"
                assert answer.headers["Retry-After"] == "2"
            return answer.status_code

        assert [await ask("acme", key) for key in ("one", "two", "one", "three", "two")] == [202, 202, 202, 429, 202]
        assert await ask("other", "one") == 202
        fresh = RunQuota(bus, RunReader(bus, Deletions(bus)), 4)
        async with fresh.admitted(ACME, new_id()):
            with pytest.raises(TooManyRuns):
                async with fresh.admitted(ACME, new_id()):
                    pass
        await bus.api(f"STREAM.PURGE.{subjects.TIMERS}", {"filter": subjects.timer.pattern(tenant="acme", run=running)})
        assert await RunQuota(bus, RunReader(bus, Deletions(bus)), 3)._open_runs("acme") == 2


async def test_runs_that_are_not_written_yet_count_too(
    own_nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the server is asked meanwhile: it does not know them."""
    monkeypatch.setattr(quota, "MAX_COUNT_AGE_S", 0.0)
    async with provisioned(own_nats_server.url) as bus:
        await provision(bus)
        runs = RunQuota(bus, RunReader(bus, Deletions(bus)), 3)
        async with AsyncExitStack() as writing:
            for _ in range(3):
                await writing.enter_async_context(runs.admitted(ACME, new_id()))
            with pytest.raises(TooManyRuns):
                await writing.enter_async_context(runs.admitted(ACME, new_id()))
        async with runs.admitted(ACME, new_id()):
            assert await runs._open_runs("acme") == 0


async def test_open_runs_are_those_with_a_request_or_a_timer(bus: Bus) -> None:
    """A subject that names no run is none, and neither is a timer of a session or a schedule."""
    tenant, queued, timed = f"t{new_id()[:8]}", new_id(), new_id()
    await bus.publish(subjects.request(tenant, queued), b"{}")
    await bus.publish(f"timer.{tenant}.{timed}.deadline", b"{}")
    await bus.publish(f"timer.{tenant}.x_y.deadline", b"{}")
    for name in (f"group-{queued}", f"waiter-{queued}", "fire"):
        await bus.publish(subjects.timer(tenant, new_id(), name), b"{}")
    assert await open_runs(bus, tenant) == {queued, timed}
