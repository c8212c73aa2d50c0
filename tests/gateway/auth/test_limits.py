"""What a key may ask for: runs at once, tools, agents (docs/http.md)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.gateway.auth.key_lines import new_key
from services.gateway.runs import quota
from services.messaging.connection import Bus
from tests.support.buses import provisioned
from tests.support.gateways import Served, bearer, requested, serving
from tests.support.nats_server import NatsServer

KEYS = {
    "free": new_key("acme"),
    "two runs": new_key("acme", {"name": "two", "max_runs": "2"}),
    "one run": new_key("acme", {"name": "one", "max_runs": "1"}),
    "same name": new_key("other", {"name": "two", "max_runs": "2"}),
    "tools": new_key("acme", {"tools": "add,draw"}),
    "no tools": new_key("acme", {"tools": ""}),
    "agents": new_key("acme", {"agents": "support,billing"}),
}
LINES = "\n".join(line for _, line in KEYS.values())


@pytest.fixture
async def bus(own_nats_server: NatsServer) -> AsyncIterator[Bus]:
    async with provisioned(own_nats_server.url) as made:
        yield made


async def ask(served: Served, name: str, path: str = "/v1/runs", **body: Any) -> httpx.Response:
    headers = {**bearer(KEYS[name][0]), "Idempotency-Key": body.pop("key", new_id())}
    return await served.http.post(path, json={"query": "q", **body}, headers=headers)


async def stored(bus: Bus, answer: httpx.Response) -> RunRequested:
    assert answer.status_code == 202, answer.text
    return await requested(bus, answer.json()["run_id"], "acme")


def is_refused(answer: httpx.Response) -> bool:
    """Whether the key has too many runs; the answer says so, and when to come again."""
    if answer.status_code == 202:
        return False
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_runs")
    assert "of this API key" in answer.json()["detail"]
    assert int(answer.headers["Retry-After"]) > 0
    return True


async def test_runs_of_a_key_are_counted_over_all_gateways(
    own_nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a restart, and for as long as they are open: other keys, also of this name elsewhere, are free."""
    monkeypatch.setattr(quota, "MAX_COUNT_AGE_S", 0.0)
    monkeypatch.setattr(quota, "MAX_FULL_COUNT_AGE_S", 0.0)
    url = own_nats_server.url
    async with serving(url, api_keys=LINES) as first, serving(url, api_keys=LINES) as second:
        runs = [(await ask(served, "two runs", key=f"k{number}")) for number, served in enumerate((first, second))]
        assert [answer.status_code for answer in runs] == [202, 202]
        assert [is_refused(await ask(served, "two runs")) for served in (first, second)] == [True, True]
        assert (await ask(second, "two runs", key="k0")).json() == runs[0].json(), "a repeated request is no new run"
        for other in ("free", "one run", "same name"):
            assert not is_refused(await ask(first, other))
        assert is_refused(await ask(second, "one run"))
    async with serving(url, api_keys=LINES) as third:
        assert is_refused(await ask(third, "two runs"))
        run = runs[0].json()["run_id"]
        await bus.api(f"STREAM.PURGE.{subjects.REQUESTS}", {"filter": subjects.request("acme", run)})
        assert not is_refused(await ask(third, "two runs"))
        assert is_refused(await ask(third, "two runs"))


async def test_requests_that_arrive_together_do_not_slip_through(own_nats_server: NatsServer) -> None:
    """A refused one takes no place of the tenant: the other keys of the tenant go on."""
    async with serving(own_nats_server.url, api_keys=LINES, max_open_runs=5) as served:
        answers = await asyncio.gather(*(ask(served, "two runs") for _ in range(10)))
        assert sorted(is_refused(answer) for answer in answers) == [False] * 2 + [True] * 8
        assert [(await ask(served, "free")).status_code for _ in range(4)] == [202, 202, 202, 429]


async def test_a_key_names_its_tools_only(own_nats_server: NatsServer, bus: Bus) -> None:
    """What it leaves out is bounded by the key, whatever tools are there when the run begins."""
    async with serving(own_nats_server.url, api_keys=LINES) as served:
        found = await stored(bus, await ask(served, "tools"))
        assert (found.tools, found.key_tools) == (None, ["add", "draw"])
        found = await stored(bus, await ask(served, "tools", tools=["draw"]))
        assert (found.tools, found.key_tools) == (["draw"], ["add", "draw"])
        assert (await stored(bus, await ask(served, "no tools"))).key_tools == []
        assert (await stored(bus, await ask(served, "free"))).key_tools is None
        for path in ("/v1/runs", "/chat"):
            for name, tools in (("tools", ["add", "delete_all"]), ("no tools", ["add"])):
                refused = await ask(served, name, path, tools=tools)
                assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
                assert refused.json()["errors"][0]["field"] == f"tools.{len(tools) - 1}"


async def test_a_key_asks_its_agents_only(own_nats_server: NatsServer, bus: Bus) -> None:
    """And the first of them where the request names none."""
    async with serving(own_nats_server.url, api_keys=LINES) as served:
        assert (await stored(bus, await ask(served, "agents"))).agent == "support"
        assert (await stored(bus, await ask(served, "agents", agent="billing"))).agent == "billing"
        for agent in ("default", "admin"):
            refused = await ask(served, "agents", agent=agent)
            assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
            assert refused.json()["errors"] == [{"field": "agent", "message": "this key may name: support, billing"}]


async def test_a_repeated_request_is_recognised_after_its_key_has_changed(
    own_nats_server: NatsServer, bus: Bus
) -> None:
    """The digest of a request is that of its body, not of what the key adds."""
    key, line = new_key("acme", {"name": "a"})
    headers = {**bearer(key), "Idempotency-Key": "once"}
    found = []
    for more in ("", " tools=add agents=support", " max_runs=1"):
        async with serving(own_nats_server.url, api_keys=line + more) as served:
            answer = await served.http.post("/v1/runs", json={"query": "q"}, headers=headers)
            found.append((await stored(bus, answer)).run_id)
    assert len(set(found)) == 1
