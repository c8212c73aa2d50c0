"""What all runs of an API key may spend on a day: checked before each model call, counted once per run."""

import asyncio
import time
from typing import Any

import pytest

from contracts.runs.requests import KeyBudget, KeySpent
from contracts.wire import keys
from contracts.wire.names import new_id, unix_ms
from services.gateway.auth.key_lines import new_key
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.budgets.totals import KeyDay, Spending
from tests.planner.conftest import Plan
from tests.support.dying_planners import DyingPlanner
from tests.support.gateways import serving
from tests.support.model_server import ModelServer, Say, Seen, action, answer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning
from tests.support.waiting import wait_until

USAGE = {"prompt_tokens": 30, "completion_tokens": 10}
LOOK, FINAL = Say(text=action("look", q="x").text, usage=USAGE), Say(text=answer("whole").text, usage=USAGE)


def key(**budget: Any) -> dict[str, Any]:
    """A key of the test's own, as its requests name it."""
    return {"key_id": new_id(), "key_budget": KeyBudget(**budget)}


async def stored(bus: Bus, key_id: str) -> list[Spending]:
    """What the runs of a key have spent today, by the bucket."""
    pattern = keys.spent_on(*KeyDay.at("default", key_id, unix_ms()))
    entries = [entry.parsed(KeySpent) for entry in await Bucket(bus, keys.RUNS_BUCKET).latest(pattern)]
    return sorted(Spending.stored(entry) for entry in entries if entry is not None)


async def settled(bus: Bus, key_id: str, *wanted: tuple[int, int]) -> None:
    """Return once that is stored: it happens beside what follows in the run."""

    async def is_stored() -> bool:
        return await stored(bus, key_id) == [*wanted]

    await wait_until(is_stored, timeout=60, what=f"{wanted} is stored")


def stopped(end: Any, limit: str) -> None:
    """The run has ended since its key's budget was spent, which a warning says."""
    assert (end.type, end.reason) == ("done", "budget_exhausted")
    assert f"budget exhausted: {limit} of the API key" in end.warnings


async def test_the_runs_of_a_key_share_its_budget(plan: Plan, provider: ModelServer) -> None:
    """The one that finds it spent ends with what it has; later ones call no model. Other keys go on."""
    provider.say(LOOK)
    planning, mine = await plan(), key(max_tokens=100)
    first = await planning.tell(**mine, limits={"max_steps": 1})
    await settled(planning.bus, mine["key_id"], (40, 0))
    second = await planning.tell(**mine, limits={"grace_s": 60})
    stopped(second.end, "max_tokens_per_day of 100")
    assert second.end.raw_answer == "found x"
    assert [first.end.usage.model_calls, second.end.usage.model_calls, len(provider.ledger)] == [1, 2, 3]
    third = await planning.tell(**mine)
    stopped(third.end, "max_tokens_per_day of 100")
    assert (len(provider.ledger), third.end.usage.model_calls) == (3, 0)
    await settled(planning.bus, mine["key_id"], (40, 0), (80, 0))
    provider.reset()
    provider.say(FINAL)
    assert (await planning.tell(**key(max_tokens=100))).end.raw_answer == "whole"


async def test_background_tasks_and_their_reports_count_too(plan: Plan, provider: ModelServer) -> None:
    """For the key of the run that spawned them; each run counts what it has spent itself."""

    def reply(seen: Seen) -> Say:
        begins = seen.turns == 0 and "What?" in seen.text
        return Say(text=action("task", mode="subagent", query="how far?").text, usage=USAGE) if begins else FINAL

    provider.choose = reply
    planning, mine = (
        await plan(agents={"default": {"tasks": {"spawn_requires_confirmation": False}}}),
        key(max_tokens=10**6),
    )
    assert (await planning.tell(**mine, session_id=new_id())).end.raw_answer == "whole"
    await settled(planning.bus, mine["key_id"], (40, 0), (40, 0), (80, 0))


async def test_two_planners_and_a_gateway_know_within_two_seconds(
    own_nats_server: NatsServer, provider: ModelServer
) -> None:
    """Runs at once exceed a budget by the calls that are in flight at most; then nothing is accepted or called."""
    provider.reset()
    provider.say(Say(text=answer("whole").text, usage=USAGE, delay_s=0.05))
    url, (shown, line) = own_nats_server.url, new_key("default", {"name": "ci", "max_tokens_per_day": "400"})
    bearer = {"Authorization": f"Bearer {shown}"}
    async with planning(url, provider) as one, planning(url, provider), serving(url, api_keys=line) as served:

        async def spent() -> int:
            tokens = (await served.http.get("/v1/budget", headers=bearer)).json()["spent"]["tokens"]
            return int(tokens)

        assert await spent() == 0
        for _ in range(2):
            answers = await asyncio.gather(
                *(served.http.post("/v1/runs", json={"query": "q"}, headers=bearer) for _ in range(4))
            )
            for answered in answers:
                await one.ended(answered.json()["run_id"])
        ended_at = time.monotonic()
        await wait_until(lambda: _is(spent, 320), what="the gateway knows what was spent")
        assert time.monotonic() - ended_at < 2
        runs = [await one.ask(key_id="ci", key_budget=KeyBudget(max_tokens=400)) for _ in range(12)]
        ends = [(await one.ended(run)).end for run in runs]
        in_flight = len([end for end in ends if end.reason == "answer_complete"])
        assert 2 <= in_flight <= 12
        ended_at = time.monotonic()
        await wait_until(lambda: _is(spent, 320 + 40 * in_flight), what="the gateway knows what was spent")
        refused = await served.http.post("/v1/runs", json={"query": "q"}, headers=bearer)
        assert (refused.status_code, refused.json()["code"]) == (429, "key_budget_spent")
        assert time.monotonic() - ended_at < 2
        calls = len(provider.ledger)
        for run in [await one.ask(key_id="ci", key_budget=KeyBudget(max_tokens=400)) for _ in range(6)]:
            stopped((await one.ended(run)).end, "max_tokens_per_day of 400")
        assert len(provider.ledger) == calls


async def _is(number: Any, wanted: int) -> bool:
    return bool(await number() == wanted)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "moment", "word"),
    [
        ('"type":"done"', "known", "emit"),
        ('"tokens":40', "before", "$KV"),
        ('"tokens":40', "stored", "$KV"),
        ('"tokens":40', "known", "$KV"),
    ],
)
async def test_a_run_counts_once_whatever_is_repeated(
    own_nats_server: NatsServer, client: Planning, provider: ModelServer, text: str, moment: str, word: str
) -> None:
    """A planner is killed after it has recorded what the run spent; another one stores it, once."""
    url, mine = own_nats_server.url, key(max_tokens=1000)
    provider.say(FINAL)
    dying = DyingPlanner(url, provider.url, text, moment, word)
    run = await client.ask(**mine)
    await dying.dead()
    async with planning(url, provider):
        await client.ended(run, 60)
        await settled(client.bus, mine["key_id"], (40, 0))
    assert await stored(client.bus, mine["key_id"]) == [(40, 0)]
