"""Decide what to compute: from what is given by name, and from the words of the question."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal

from .columns import Column, Unclear

MAX_GROUPS = 500
"""A text column with more different values is no group: it holds names or ids."""

Measure = Literal["growth", "sum", "mean", "count", "top"]
Grain = Literal["year", "quarter", "month"]

# The first measure of which a word is in the question counts.
_MEASURE_WORDS: tuple[tuple[Measure, str], ...] = (
    (
        "growth",
        r"gr[eo]w\w*|(in|de)creas\w+|declin\w+|rose|rise\w*|f[ae]ll\w*|shr[aiu]nk\w*|chang\w+|trend\w*|develop\w*",
    ),
    ("mean", r"average\w*|mean|typical\w*"),
    ("count", r"how many (rows|records|entries|lines)|count|number of (rows|records|entries|lines)"),
    ("top", r"most|top|best|highest|largest|biggest|least|lowest|worst|smallest|weakest|strongest|fewest"),
)
_ASCENDING = r"least|lowest|worst|smallest|weakest|fewest|declin\w+|decreas\w+|f[ae]ll\w*|shr[aiu]nk\w*|slowest"
_CHOOSING = r"which|what|who|most|least|best|worst|top|compare"
_SYNONYMS = {"revenue": r"sales|turnover|income|earn\w*|money", "units": r"sold|sells?|pieces|quantit\w+"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is computed.

    `where` keeps only rows with one of the values; `years` only the years from the first to the last.
    """

    measure: Measure
    group_by: str | None = None
    value: str | None = None
    period: str | None = None
    grain: Grain = "month"
    ascending: bool = False
    where: dict[str, set[str]] = field(default_factory=dict)
    years: tuple[str, ...] = ()

    @property
    def group_name(self) -> str:
        """What the groups are called; years are called so, whatever their column is called."""
        return self.grain if self.by_period else self.group_by or "group"

    @property
    def by_period(self) -> bool:
        """Whether the periods are the groups."""
        return self.group_by is not None and self.group_by == self.period


def plan_of(table: dict[str, Column], question: str, **given: Any) -> Plan:
    """Decide what to compute: what is given by name, the rest from the question's words. Raises Unclear."""
    for key in ("group_by", "value", "period"):
        if given.get(key) and given[key] not in table:
            raise Unclear(f"there is no column {given[key]!r}; the columns are {', '.join(table)}")
    period = given.get("period") or next((c.name for c in table.values() if c.kind == "period"), None)
    said: list[Measure] = [measure for measure, words in _MEASURE_WORDS if _says(question, words)]
    measure: Measure = given.get("measure") or [*said, "sum"][0]
    if measure == "growth" and period is None:
        raise Unclear("growth needs a column of periods, as 2024-07")
    value = given.get("value") or _value_of(table, question)
    if measure != "count" and (value is None or table[value].kind != "number"):
        raise Unclear(f"{measure} needs a column of numbers; the columns are {', '.join(table)}")
    group = given.get("group_by") or _group_of(table, question, measure, period)
    years = tuple(sorted(set(re.findall(r"\b(?:19|20)\d\d\b", question)))) if period else ()
    where = {c.name: named for c in table.values() if c.kind == "text" and (named := _named_values(c, question))}
    grain = given.get("grain") or _grain_of(table, question, period)
    return Plan(measure, group, value, period, grain, _says(question, _ASCENDING), where, years)


def _says(question: str, words: str) -> bool:
    return re.search(rf"\b({words})\b", question, re.IGNORECASE) is not None


def _names(question: str, name: str) -> bool:
    """Whether the question names a column or value, in singular or plural."""
    name = name.replace("_", " ").lower()
    stem = re.sub(r"(y|s)$", "", name) if len(name) > 3 else name
    return re.search(rf"\b{re.escape(stem)}(y|ies|s|es)?\b", question.lower().replace("_", " ")) is not None


def _value_of(table: dict[str, Column], question: str) -> str | None:
    numbers = [c.name for c in table.values() if c.kind == "number"]
    named = [name for name in numbers if _names(question, name)]
    meant = [name for name in numbers if _says(question, _SYNONYMS.get(name.lower(), "(?!)"))]
    return next(iter([*named, *meant, *reversed(numbers)]), None)


def _group_of(table: dict[str, Column], question: str, measure: Measure, period: str | None) -> str | None:
    groups = [c for c in table.values() if c.kind == "text" and len(set(c.cells)) <= MAX_GROUPS]
    # Of a column with one value in the question only its rows are meant ("in the North region"); with two they are
    # compared.
    values = {c.name: len(_named_values(c, question)) for c in groups}
    named = [c.name for c in groups if values[c.name] != 1 and _names(question, c.name)]
    named += [c.name for c in groups if values[c.name] > 1]
    by_period = r"(which|what|by|per|each|best|worst) (year|month|quarter|period)|(year|month|quarter)ly"
    if period and measure != "growth" and _says(question, by_period):
        named.append(period)
    if not named and groups and _says(question, _CHOOSING) and measure in {"growth", "top"}:
        named += [c.name for c in groups if values[c.name] != 1]
    return next(iter(named), None)


def _named_values(column: Column, question: str) -> set[str]:
    values = {cell for cell in column.cells if cell}
    return {value for value in values if _names(question, value)} if len(values) <= MAX_GROUPS else set()


def _grain_of(table: dict[str, Column], question: str, period: str | None) -> Grain:
    if period is None or _says(question, r"months?|monthly"):
        return "month"
    if _says(question, r"quarters?|quarterly"):
        return "quarter"
    if _says(question, r"years?|yearly|annual\w*"):
        return "year"
    # Whole years are compared where there are any: January against December would show the season.
    months: dict[str, set[str]] = defaultdict(set)
    for cell in table[period].cells:
        if cell:
            months[cell[:4]].add(cell[:7])
    sizes = {len(found) for found in months.values()}
    return "year" if len(months) > 1 and len(sizes) == 1 else "month"
