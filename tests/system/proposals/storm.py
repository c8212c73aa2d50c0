"""Chat turns on one table that propose rows, and people who apply or dismiss them, while processes are killed.

Each decision is sent by several people at once, now and then with another choice. Some turns call tools, and some keep
the proposal before.
"""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from services.messaging.connection import Bus
from tests.system import evidence
from tests.system.client import Client
from tests.system.conversations.evidence import session_records
from tests.system.model import COLUMN, Plan
from tests.system.proposals.rules import Decided, Found, Proposed, judge
from tests.system.run_storm import IDEMPOTENT
from tests.system.storm import Storm
from tests.system.traces import RunEvidence

_AT_ONCE = 6
"""Sessions that go on at the same time."""
_KEPT, _DISMISSED, _LEFT = 0.2, 0.15, 0.2
"""Shares of the turns that keep the proposal before, and of the proposals that are dismissed, or left for a message."""
_OTHER_CHOICE = 0.3
_PAGE_ROWS = 500


@dataclass
class ProposalStorm(Storm):
    """One storm under way."""

    sessions: int = 1
    found: Found = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.found = Found(self.of_runs)

    async def work(self, client: Client) -> None:
        """Hold the sessions, a few at a time."""
        columns: dict[str, Any] = {COLUMN: "text"}
        table_id = await asyncio.to_thread(self.system.tables().table, f"T{self.seed}", **columns)
        self.found.table_id = table_id
        places = asyncio.Semaphore(_AT_ONCE)
        names = [f"p{self.seed}-{n}" for n in range(self.sessions)]
        await asyncio.gather(*(self._talk(client, places, name, table_id) for name in names))

    async def _talk(self, client: Client, places: asyncio.Semaphore, session_id: str, table_id: str) -> None:
        rng = random.Random(session_id)
        async with places:
            for nth in range(self.runs // self.sessions):
                plan = draw(rng, f"{session_id}-{nth}")
                body = {
                    "page": {"name": "table_view", "table_id": table_id},
                    "session_id": session_id,
                    "keep_proposal": rng.random() < _KEPT,
                }
                run = RunEvidence(await client.ask(plan.query, key=f"k-{plan.nth}", **plan.request, **body))
                self.of_runs.runs.append(run)
                await client.follow(run.run_id, run.seen, hop=lambda: rng.uniform(0.3, 3))
                for event in [event for _, event in run.seen if event["type"] == "payload"]:
                    proposed = Proposed(event["payload_id"], session_id, plan.names)
                    self.found.proposals.append(proposed)
                    await self._decide(client, proposed, rng)

    async def _decide(self, client: Client, proposed: Proposed, rng: random.Random) -> None:
        """Have several people decide at once, or nobody."""
        chance = rng.random()
        if chance < _LEFT:
            return
        if chance < _LEFT + _DISMISSED:
            await self._send(client, proposed, "dismiss", None)
            return
        numbers = range(len(proposed.names))
        chosen = sorted(rng.sample(numbers, rng.randint(1, len(numbers))))
        sends = [self._send(client, proposed, "apply", chosen) for _ in range(rng.randint(1, 3))]
        if rng.random() < _OTHER_CHOICE:
            sends.append(self._send(client, proposed, "apply", [*numbers]))
        await asyncio.gather(*sends)

    async def _send(self, client: Client, proposed: Proposed, verb: str, chosen: list[int] | None) -> None:
        body = {"operations": chosen} if chosen is not None else {}
        while True:
            path = f"/v1/proposals/{proposed.proposal_id}/{verb}"
            answer = await client.surely("POST", path, json=body)
            if answer.status_code in {200, 409} and answer.json().get("code") != "proposal_open":
                break
        decided = Decided(proposed.proposal_id, verb, chosen, answer.status_code, answer.json())
        self.found.decisions.append(decided)

    async def calm(self, client: Client) -> None:
        """Read the table, and each proposal as it is now."""
        tables, cursor = self.system.tables(), None
        while True:
            query: dict[str, Any] = {"table_id": self.found.table_id, "limit": _PAGE_ROWS, "cursor": cursor}
            page = await asyncio.to_thread(tables.call, "query_rows", **query)
            self.found.rows += [row["cells"][COLUMN] for row in page["rows"]]
            if (cursor := page["next_cursor"]) is None:
                break
        for each in self.found.proposals:
            self.found.shown[each.proposal_id] = await client.get(f"/v1/proposals/{each.proposal_id}")

    async def gather(self, bus: Bus) -> None:
        read = await evidence.gather(bus, self.of_runs.runs, self.system.ledger, IDEMPOTENT)
        self.of_runs.executions, self.of_runs.left, self.of_runs.idempotent = (
            read.executions,
            read.left,
            read.idempotent,
        )
        names = {each.session_id for each in self.found.proposals}
        self.found.sessions = {name: await session_records(bus, name) for name in names}

    def judge(self) -> dict[str, list[str]]:
        return judge(self.found)

    def report(self, complaints: dict[str, list[str]]) -> str:
        said = {
            "seed": self.seed,
            "runs": len(self.of_runs.runs),
            "proposals": dict(Counter(str(each["state"]) for each in self.found.shown.values())),
            "decisions": dict(Counter(f"{each.verb} {each.status}" for each in self.found.decisions)),
            "rows": len(self.found.rows),
            "blows": dict(self.struck),
            "complaints": complaints,
        }
        return json.dumps(said, indent=1)


def draw(rng: random.Random, nth: str) -> Plan:
    """Choose what a turn does: up to two calls, then text and up to four rows."""
    return Plan(
        strategy="chat",
        turns=tuple(("often",) for _ in range(rng.choice([0, 0, 1, 2]))),
        call_ms=rng.choice([0, 50, 300]),
        tokens=rng.randint(3, 30),
        pace_ms=rng.choice([0, 2, 20]),
        delay_ms=rng.choice([0, 50, 300]),
        adds=rng.choice([0, 1, 2, 4]),
        nth=nth,
    )
