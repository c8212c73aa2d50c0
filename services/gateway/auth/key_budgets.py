"""The budget of an API key: whether it admits one more run, and what is left of it today.

What a run spends becomes known while it runs. So runs that are admitted together may exceed the budget by what they
spend until the planners know of each other's model calls, within two seconds.
"""

import asyncio
from dataclasses import dataclass

from contracts.runs.requests import KeyBudget
from contracts.wire.names import unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.errors import KeyBudgetSpent, TryAgain
from services.messaging.connection import Bus
from services.shared.budgets.spending import KeySpending
from services.shared.budgets.totals import KeyDay, Spending, exhausted, midnight_after


@dataclass(frozen=True, slots=True)
class Today:
    """The day of a key, by UTC. `ends_at`: Unix ms."""

    budget: KeyBudget
    spent: Spending
    ends_at: int


class KeyBudgets:
    """Checks the budgets of API keys. `wait_s`: how long NATS is waited for."""

    def __init__(self, bus: Bus, wait_s: float) -> None:
        self._spending = KeySpending(bus)
        self._wait_s = wait_s

    async def check(self, caller: Caller) -> None:
        """Raise KeyBudgetSpent if the key may start no run any more today, and TryAgain when NATS does not answer."""
        today = await self.today(caller)
        if today is not None and (limit := exhausted(today.budget, today.spent)) is not None:
            raise KeyBudgetSpent(limit, (today.ends_at - unix_ms()) // 1000 + 1)

    async def today(self, caller: Caller) -> Today | None:
        """Return the day of the caller's key; None: it has no budget. Raises TryAgain when NATS does not answer."""
        budget, now = caller.budget, unix_ms()
        if budget is None:
            return None
        where = KeyDay.at(caller.tenant, caller.key_id, now)
        spent = self._spending.known(where)
        if spent is None:
            try:
                async with asyncio.timeout(self._wait_s):
                    spent = await self._spending.current(where)
            except TimeoutError as error:
                raise TryAgain("The message bus does not answer.") from error
        return Today(budget, spent, midnight_after(now))
