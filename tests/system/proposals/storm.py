"""Chat turns on one table that propose rows, and people who apply or dismiss them, while processes are killed.

Each decision is sent by several people at once, now and then with another choice. Some turns call tools, and some keep
the proposal before.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.system.model import COLUMN, Plan
from tests.system.proposals import rules
from tests.system.proposals.rules import Decided, Proposals, Proposed
from tests.system.sound import IDEMPOTENT
from tests.system.storm import SessionStorm
from tests.system.traces import RunEvidence

_KEPT, _DISMISSED, _LEFT = 0.2, 0.15, 0.2
"""Shares of the turns that keep the proposal before, and of the proposals that are dismissed, or left for a message."""
_OTHER_CHOICE = 0.3
_PAGE_ROWS = 500


@dataclass
class ProposalStorm(SessionStorm):
    """One storm under way."""

    found: Proposals = field(default_factory=lambda: Proposals([], idempotent=IDEMPOTENT))
    rules = rules.RULES

    async def work(self) -> None:
        """Make the table first."""
        columns: dict[str, Any] = {COLUMN: "text"}
        self.found.table_id = await asyncio.to_thread(self.system.tables().table, f"T{self.seed}", **columns)
        await super().work()

    async def talk(self, session_id: str, requests: int, rng: random.Random) -> None:
        """Have one turn after another, and decide about what it proposes."""
        page = {"name": "table_view", "table_id": self.found.table_id}
        for nth in range(requests):
            plan = draw(rng, f"{session_id}-{nth}")
            body = {"page": page, "session_id": session_id, "keep_proposal": rng.random() < _KEPT}
            run = RunEvidence(await self.client.ask(plan.query, key=f"k-{plan.nth}", **plan.request, **body))
            self.found.runs.append(run)
            self.found.session_of[run.run_id] = session_id
            await self.client.follow(run.run_id, run.seen, hop=lambda: rng.uniform(0.3, 3))
            for event in [event for _, event in run.seen if event["type"] == "payload"]:
                proposed = Proposed(event["payload_id"], session_id, plan.names)
                self.found.proposals.append(proposed)
                await self._decide(proposed, rng)

    async def _decide(self, proposed: Proposed, rng: random.Random) -> None:
        """Have several people decide at once, or nobody."""
        chance = rng.random()
        if chance < _LEFT:
            return
        if chance < _LEFT + _DISMISSED:
            await self._send(proposed, "dismiss", None)
            return
        numbers = range(len(proposed.names))
        chosen = sorted(rng.sample(numbers, rng.randint(1, len(numbers))))
        sends = [self._send(proposed, "apply", chosen) for _ in range(rng.randint(1, 3))]
        if rng.random() < _OTHER_CHOICE:
            sends.append(self._send(proposed, "apply", [*numbers]))
        await asyncio.gather(*sends)

    async def _send(self, proposed: Proposed, verb: str, chosen: list[int] | None) -> None:
        body = {"operations": chosen} if chosen is not None else {}
        while True:
            path = f"/v1/proposals/{proposed.proposal_id}/{verb}"
            answer = await self.client.surely("POST", path, json=body)
            if answer.status_code in {200, 409} and answer.json().get("code") != "proposal_open":
                break
        decided = Decided(proposed.proposal_id, verb, chosen, answer.status_code, answer.json())
        self.found.decisions.append(decided)

    async def calm(self) -> None:
        """Read the table, and each proposal as it is now."""
        rows = await asyncio.to_thread(self.system.tables().rows, self.found.table_id)
        assert len(rows) < _PAGE_ROWS, "a second page would be missed"
        self.found.rows = [row[COLUMN] for row in rows]
        for each in self.found.proposals:
            self.found.shown[each.proposal_id] = await self.client.get(f"/v1/proposals/{each.proposal_id}")

    def counts(self) -> Counter[str]:
        states = (f"proposal {each['state']}" for each in self.found.shown.values())
        return Counter([*states, *(f"decided {each.verb} {each.status}" for each in self.found.decisions)])


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
