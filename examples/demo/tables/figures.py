"""Compute what a plan says, in decimals, and say it in a sentence."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from .columns import Column, Unclear
from .plan import Grain, Plan

ZERO = Decimal(0)
Values = dict[str, dict[str, list[Decimal]]]
"""Group -> period -> the values of its rows."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out. `series` has the values of each group over `labels`, for the chart."""

    rows: list[dict[str, Any]]
    answer: str
    labels: list[str]
    series: dict[str, list[Decimal | None]]


def analyze(table: dict[str, Column], plan: Plan, limit: int = 12) -> Outcome:
    """Compute. `limit` bounds the rows that are given back, never those that are read. Raises Unclear."""
    values: dict[str, dict[str, list[Decimal]]] = defaultdict(lambda: defaultdict(list))
    blank = 0
    for group, label, value in _kept(table, plan):
        if value is None:
            blank += 1
        else:
            values[group][label].append(value)
    if not values:
        raise Unclear("no row is left: the question asks for years or values that the table does not have together")
    measured = _growth if plan.measure == "growth" else _ranked
    outcome = measured(values, plan, limit)
    note = f" {blank} blank {'cell was' if blank == 1 else 'cells were'} left out." if blank else ""
    return Outcome(outcome.rows, outcome.answer + _scope(plan) + note, outcome.labels, outcome.series)


def _kept(table: dict[str, Column], plan: Plan) -> Iterator[tuple[str, str, Decimal | None]]:
    """Yield group, period and value of the rows that the plan keeps."""
    rows = len(next(iter(table.values())).cells)
    periods = table[plan.period].cells if plan.period else [""] * rows
    groups = table[plan.group_by].cells if plan.group_by else [plan.value or "rows"] * rows
    numbers = table[plan.value].cells if plan.value and plan.measure != "count" else [Decimal(1)] * rows
    wanted = [(table[name].cells, values) for name, values in plan.where.items()]
    for at in range(rows):
        period, group = periods[at], groups[at]
        if period is None or group is None or not all(cells[at] in values for cells, values in wanted):
            continue
        if plan.years and not plan.years[0] <= period[:4] <= plan.years[-1]:
            continue
        label = _label(period, plan.grain)
        yield (label if plan.by_period else str(group)), label, numbers[at]


def _label(period: str, grain: Grain) -> str:
    """The year, quarter or month that an ISO period lies in; a wider period stays as it is."""
    if grain == "year":
        return period[:4]
    if grain == "quarter" and period[5:6].isdigit():
        return f"{period[:4]}-Q{(int(period[5:7]) + 2) // 3}"
    return period[:7]


def _growth(values: Values, plan: Plan, limit: int) -> Outcome:
    labels = sorted({label for found in values.values() for label in found})
    first, last = labels[0], labels[-1]
    if first == last:
        raise Unclear(f"growth needs two periods, there is only {first}")
    sums = {group: {label: sum(found, ZERO) for label, found in by.items()} for group, by in values.items()}
    changes = {
        g: (by[last] - by[first]) / by[first] * 100 for g, by in sums.items() if by.get(first, ZERO) > 0 and last in by
    }
    if not changes:
        raise Unclear(f"no group has a value above zero in {first} and one in {last}")
    order = _ordered(changes, ascending=plan.ascending)[:limit]
    rows = [
        {plan.group_name: g, **{at: plain(sums[g][at]) for at in (first, last)}, "change_percent": plain(changes[g], 1)}
        for g in order
    ]
    best = order[0]
    moved = f"{'rose' if changes[best] >= 0 else 'fell'} by {shown(abs(changes[best]), 1)}%"
    course = f"{moved} from {shown(sums[best][first])} in {first} to {shown(sums[best][last])} in {last}"
    if plan.group_by is None:
        answer = f"{plan.value} {course}."
    else:
        what = "fell most" if plan.ascending and changes[best] < 0 else "grew least" if plan.ascending else "grew most"
        others = ", ".join(
            f"{group} {'+' if changes[group] > 0 else ''}{shown(changes[group], 1)}%" for group in order[1:]
        )
        answer = f"{best} {what}: its {plan.value} {course}." + (f" The others: {others}." if others else "")
    return Outcome(rows, answer, labels, {g: [sums[g].get(label) for label in labels] for g in order})


def _ranked(values: Values, plan: Plan, limit: int) -> Outcome:
    joined = {group: [v for found in by.values() for v in found] for group, by in values.items()}
    results = {g: sum(found, ZERO) / (len(found) if plan.measure == "mean" else 1) for g, found in joined.items()}
    name = "rows" if plan.measure == "count" else f"average {plan.value}" if plan.measure == "mean" else str(plan.value)
    in_time = plan.by_period and plan.measure != "top"
    order = (sorted(results) if in_time else _ordered(results, ascending=plan.ascending))[:limit]
    rows = [{plan.group_name: group, name: plain(results[group])} for group in order]
    listed = ", ".join(f"{group} {shown(results[group])}" for group in order)
    if plan.group_by is None:
        measure = plan.measure if plan.measure != "top" else "sum"
        answer = f"The {measure} of {plan.value or 'rows'} is {shown(results[order[0]])}."
    elif plan.measure == "top":
        which = "lowest" if plan.ascending else "highest"
        answer = f"{order[0]} has the {which} {name}: {shown(results[order[0]])}. In order: {listed}."
    else:
        answer = f"{name} by {plan.group_name}: {listed}."
    return Outcome(rows, answer, order, {name: [results[group] for group in order]})


def _ordered(results: dict[str, Decimal], *, ascending: bool) -> list[str]:
    return sorted(results, key=lambda group: (results[group] if ascending else -results[group], group))


def _scope(plan: Plan) -> str:
    parts = [", ".join(sorted(values)) for values in plan.where.values()]
    if plan.years and plan.measure != "growth":
        parts.append("-".join(dict.fromkeys((plan.years[0], plan.years[-1]))))
    return f" (Only {'; '.join(parts)}.)" if parts else ""


def plain(value: Decimal, digits: int = 2) -> int | float:
    """A JSON number: whole where it is whole."""
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else float(rounded)


def shown(value: Decimal, digits: int = 2) -> str:
    """A number for people: 1,234.50, or 1,234 where it is whole."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.{digits}f}"
