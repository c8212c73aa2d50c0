"""What the runs of a key have spent on a day, and what that leaves of its budget."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.runs.payload import Usage
from contracts.runs.requests import KeyBudget, KeySpent, RunRequested
from contracts.wire.names import new_id
from services.shared.budgets.totals import DayTotals, KeyDay, Spending, exhausted, midnight_after

RUNS = st.sampled_from([f"{number:032x}" for number in range(4)])
TOTALS = st.builds(Spending, st.integers(0, 1000), st.integers(0, 10**12))


def test_ten_thousand_small_runs_add_up_exactly() -> None:
    """A sum of floats would be off by then, and by more with each run."""
    totals, prices = DayTotals(), ["0.0000001", "0.1", "0.0123456", "0.000003"]
    for number in range(10_000):
        usage = Usage(prompt_tokens=2, completion_tokens=1, cost_usd=float(prices[number % 4]))
        stored = KeySpent.model_validate_json(Spending.of(usage).entry().model_dump_json())
        totals.take(new_id(), Spending.stored(stored))
    exact = sum(map(Decimal, prices)) * 2500
    assert totals.sum == (30_000, int(exact * 10**9))
    assert exhausted(KeyBudget(max_cost_usd=float(exact)), totals.sum) == f"max_cost_usd_per_day of {float(exact):g}"
    assert exhausted(KeyBudget(max_cost_usd=float(exact) + 0.000001), totals.sum) is None


@given(st.lists(st.tuples(RUNS, TOTALS)), st.randoms())
def test_a_run_counts_once_in_whatever_order_its_totals_arrive(
    taken: list[tuple[str, Spending]], random: object
) -> None:
    """Twice, late, or by several instances: its largest total counts."""
    repeated = taken * 2
    random.shuffle(repeated)  # type: ignore[attr-defined]
    totals = DayTotals()
    for run, spent in repeated:
        totals.take(run, spent)
    largest: dict[str, Spending] = {}
    for run, spent in taken:
        largest[run] = spent.at_least(largest.get(run, Spending()))
    assert totals.sum == tuple(map(sum, zip(Spending(), *largest.values(), strict=True)))


@pytest.mark.parametrize(
    ("budget", "spent", "limit"),
    [
        (KeyBudget(), Spending(10**9, 10**18), None),
        (KeyBudget(max_tokens=10), Spending(9, 10**18), None),
        (KeyBudget(max_tokens=10), Spending(10), "max_tokens_per_day of 10"),
        (KeyBudget(max_cost_usd=0.25), Spending(10**9, 249_999_999), None),
        (KeyBudget(max_cost_usd=0.25), Spending(0, 250_000_000), "max_cost_usd_per_day of 0.25"),
        (KeyBudget(max_tokens=1, max_cost_usd=1.0), Spending(1, 10**9), "max_tokens_per_day of 1"),
    ],
)
def test_a_budget_is_exhausted_when_its_limit_is_reached(budget: KeyBudget, spent: Spending, limit: str | None) -> None:
    """The one that is named first where both are."""
    assert exhausted(budget, spent) == limit


def test_the_day_of_a_run_is_that_of_its_request() -> None:
    """By UTC, wherever the process runs."""
    request = RunRequested(run_id="0" * 32, tenant="acme", requested_at=0, trace_id="", query="q", key_id="ci")
    days = {1_709_251_199_999: "20240229", 1_709_251_200_000: "20240301"}
    for at, day in days.items():
        assert KeyDay.of(request.model_copy(update={"requested_at": at})) == ("acme", "ci", day)
    assert midnight_after(1_709_251_199_999) == midnight_after(1_709_164_800_000) == 1_709_251_200_000
    assert midnight_after(1_709_251_200_000) == 1_709_251_200_000 + 86_400_000
