"""What model calls cost, what the runs of an API key have spent on a day, and whether a budget is exhausted. Pure.

Rule 1: a run counts for the day of its request, by UTC, to its end.
Rule 2: what a run reports is its total, which only grows: a message that is repeated or late changes nothing.
Rule 3: money is added up in whole nano-dollars, so that no sum drifts, however many runs it has.
"""

import time
from dataclasses import dataclass, field
from typing import NamedTuple

from contracts.runs.payload import Usage
from contracts.runs.requests import KeyBudget, KeySpent, RunRequested
from contracts.wire import keys


def spent(total: Usage, more: Usage | None, *, tool_calls: int = 0, repairs: int = 0) -> Usage:
    """Add up usage. One model call without a known price makes the cost unknown."""
    more = more or Usage(cost_usd=0.0)
    if not total.model_calls:
        cost = more.cost_usd
    else:
        cost = None if total.cost_usd is None or more.cost_usd is None else total.cost_usd + more.cost_usd
    return Usage(
        model_calls=total.model_calls + more.model_calls,
        tool_calls=total.tool_calls + tool_calls,
        prompt_tokens=total.prompt_tokens + more.prompt_tokens,
        completion_tokens=total.completion_tokens + more.completion_tokens,
        reasoning_tokens=total.reasoning_tokens + more.reasoning_tokens,
        cached_tokens=total.cached_tokens + more.cached_tokens,
        cost_usd=cost,
        repairs=total.repairs + repairs,
        estimated=total.estimated or more.estimated,
    )


NANO_USD = 1_000_000_000
_DAY_S = 86_400


class KeyDay(NamedTuple):
    """A day of an API key. `day`: by UTC, as YYYYMMDD."""

    tenant: str
    key_id: str
    day: str

    @classmethod
    def at(cls, tenant: str, key_id: str, at_ms: int) -> "KeyDay":
        """Return the day of a key at a time, Unix ms."""
        return cls(tenant, key_id, time.strftime("%Y%m%d", time.gmtime(at_ms / 1000)))

    @classmethod
    def of(cls, request: RunRequested) -> "KeyDay":
        """Return the day for which a run counts."""
        return cls.at(request.tenant, request.key_id, request.requested_at)

    def key_of(self, run: str) -> str:
        """Return the key, in the bucket of runs, of what a run has spent."""
        return keys.spent_key(*self, run)


def midnight_after(at_ms: int) -> int:
    """Return when the day of a time ends by UTC; both are Unix ms."""
    return (at_ms // 1000 // _DAY_S + 1) * _DAY_S * 1000


class Spending(NamedTuple):
    """Tokens and money, of a run or of all runs of a day."""

    tokens: int = 0
    nano_usd: int = 0

    @classmethod
    def of(cls, usage: Usage) -> "Spending":
        """Return what a run has spent. Money that is not known counts as none."""
        return cls(usage.prompt_tokens + usage.completion_tokens, _nano(usage.cost_usd or 0.0))

    @classmethod
    def stored(cls, entry: KeySpent) -> "Spending":
        """Return what an entry says."""
        return cls(entry.tokens, _nano(entry.cost_usd))

    def entry(self) -> KeySpent:
        """Return it as an entry."""
        return KeySpent(tokens=self.tokens, cost_usd=self.cost_usd)

    @property
    def cost_usd(self) -> float:
        """The money in dollars."""
        return self.nano_usd / NANO_USD

    def at_least(self, other: "Spending") -> "Spending":
        """Return the larger of two totals of one run."""
        return Spending(max(self.tokens, other.tokens), max(self.nano_usd, other.nano_usd))


def exhausted(budget: KeyBudget, spent: Spending) -> str | None:
    """Name the limit that forbids another model call, by the field of the key's line; None while none does."""
    if budget.max_tokens is not None and spent.tokens >= budget.max_tokens:
        return f"max_tokens_per_day of {budget.max_tokens}"
    if budget.max_cost_usd is not None and spent.nano_usd >= _nano(budget.max_cost_usd):
        return f"max_cost_usd_per_day of {budget.max_cost_usd:g}"
    return None


@dataclass(slots=True)
class DayTotals:
    """What the runs of one day have spent: each one's total, and their sum."""

    sum: Spending = field(default_factory=Spending)
    runs: dict[bytes, Spending] = field(default_factory=dict)
    """The totals by run id. The run whose total has changed last stands at the end."""

    def take(self, run: str, spent: Spending) -> None:
        """Take a run's total."""
        run_id = bytes.fromhex(run)
        before = self.runs.pop(run_id, Spending())
        after = self.runs[run_id] = before.at_least(spent)
        self.sum = Spending(
            self.sum.tokens + after.tokens - before.tokens, self.sum.nano_usd + after.nano_usd - before.nano_usd
        )

    def forget_oldest(self) -> None:
        """Forget which run spent a part of the sum: the one that has not changed for longest."""
        del self.runs[next(iter(self.runs))]


def _nano(usd: float) -> int:
    return round(usd * NANO_USD)
