"""A key whose runs have spent its budget for the day starts no more of them (docs/http.md)."""

from pathlib import Path

from contracts.runs.requests import KeyBudget
from contracts.wire import keys
from contracts.wire.names import new_id, unix_ms
from services.gateway.auth.key_lines import new_key
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.budgets.totals import KeyDay, Spending, midnight_after
from tests.gateway.auth.test_limits import stored
from tests.support.buses import provisioned
from tests.support.gateways import assert_unavailable, bearer, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

TOKENS = new_key("acme", {"name": "tokens", "max_tokens_per_day": "100"})
MONEY = new_key("acme", {"name": "money", "max_cost_usd_per_day": "0.5"})
FREE = new_key("acme")
LINES = "\n".join(line for _, line in (TOKENS, MONEY, FREE))


async def spend(bus: Bus, name: str, spent: Spending, at: int = 0) -> None:
    """Store what a run of a key has spent, as a planner does."""
    await Bucket(bus, keys.RUNS_BUCKET).put(KeyDay.at("acme", name, at or unix_ms()).key_of(new_id()), spent.entry())


async def test_a_spent_budget_refuses_runs_until_midnight(own_nats_server: NatsServer) -> None:
    """Of this key only; a request that was accepted before gives its run again."""
    async with provisioned(own_nats_server.url) as bus, serving(own_nats_server.url, api_keys=LINES) as served:
        once = {**bearer(TOKENS[0]), "Idempotency-Key": "once"}
        first = await served.http.post("/v1/runs", json={"query": "q"}, headers=once)
        assert (await stored(bus, first)).key_budget == KeyBudget(max_tokens=100)
        await spend(bus, "tokens", Spending(99))
        await spend(bus, "tokens", Spending(1000), unix_ms() - 86_400_000)
        assert (await served.http.post("/v1/runs", json={"query": "q"}, headers=bearer(TOKENS[0]))).status_code == 202
        await spend(bus, "tokens", Spending(1))
        await wait_until(lambda: _known(served.parts, 100), what="the gateway knows of it")
        for path in ("/v1/runs", "/chat"):
            answer = await served.http.post(path, json={"query": "q"}, headers=bearer(TOKENS[0]))
            assert (answer.status_code, answer.json()["code"]) == (429, "key_budget_spent")
            assert "max_tokens_per_day of 100" in answer.json()["detail"]
            left_s = (midnight_after(unix_ms()) - unix_ms()) / 1000
            assert left_s - 5 < int(answer.headers["Retry-After"]) % 86_400 <= left_s + 5
        assert (await served.http.post("/v1/runs", json={"query": "q"}, headers=once)).json() == first.json()
        for key in (MONEY, FREE):
            assert (await served.http.post("/v1/runs", json={"query": "q"}, headers=bearer(key[0]))).status_code == 202


def _known(gateway: object, tokens: int) -> bool:
    found = gateway.budgets._spending.known(KeyDay.at("acme", "tokens", unix_ms()))  # type: ignore[attr-defined]
    return found is not None and found.tokens >= tokens


async def test_a_caller_sees_what_is_left(own_nats_server: NatsServer) -> None:
    """Of its own key, today."""
    async with provisioned(own_nats_server.url) as bus, serving(own_nats_server.url, api_keys=LINES) as served:
        await spend(bus, "money", Spending(7, 250_000_000))
        answer = await served.http.get("/v1/budget", headers=bearer(MONEY[0]))
        assert answer.json() == {
            "limits": {"max_tokens": None, "max_cost_usd": 0.5},
            "spent": {"v": 1, "tokens": 7, "cost_usd": 0.25},
            "ends_at": midnight_after(unix_ms()),
        }
        answer = await served.http.get("/v1/budget", headers=bearer(FREE[0]))
        assert answer.json() == {"limits": None, "spent": None, "ends_at": None}
        assert [*served.parts.budgets._spending._days] == [KeyDay.at("acme", "money", unix_ms())]


async def test_nothing_is_accepted_while_nobody_knows_what_was_spent(own_nats_server: NatsServer) -> None:
    """The caller asks again."""
    async with serving(own_nats_server.url, api_keys=LINES, accept_wait_s=0.2) as served:
        own_nats_server.kill()
        assert_unavailable(await served.http.get("/v1/budget", headers=bearer(TOKENS[0])))
        own_nats_server.start()


async def test_a_changed_limit_holds_for_new_requests(own_nats_server: NatsServer, tmp_path: Path) -> None:
    """Of a file that is read again. A run keeps the limit with which it was requested."""
    file = tmp_path / "keys"
    file.write_text(TOKENS[1])
    async with (
        provisioned(own_nats_server.url) as bus,
        serving(own_nats_server.url, api_keys_file=str(file)) as served,
    ):
        first = await served.http.post("/v1/runs", json={"query": "q"}, headers=bearer(TOKENS[0]))
        await spend(bus, "tokens", Spending(100))
        await wait_until(lambda: _known(served.parts, 100), what="the gateway knows of it")
        file.write_text(TOKENS[1].replace("=100", "=1000"))
        served.parts.guard.keys.check(file)
        second = await served.http.post("/v1/runs", json={"query": "q"}, headers=bearer(TOKENS[0]))
        budgets = [(await stored(bus, answer)).key_budget for answer in (first, second)]
        assert budgets == [KeyBudget(max_tokens=100), KeyBudget(max_tokens=1000)]
