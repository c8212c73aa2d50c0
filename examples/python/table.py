"""A tool that computes over a table: `analyze_table {file: "sales.csv", question: "Which region grew most?"}`.

What to compute is given by name (group_by, value, period, measure) or read from the question's words: names of columns,
values that stand in them, years, and words as "grew", "average", "most". Everything is computed here, in decimals, from
the file; nothing is guessed by a model. Blank cells are left out and counted.

Files are read from the data folder only: RUNWIRE_DATA, else examples/data. Periods are ISO: 2024, 2024-Q3, 2024-07,
2024-07-31.
"""

import asyncio
import csv
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from runwire import ToolContext, ToolError, tool

ZERO = Decimal(0)
MAX_BYTES = 20_000_000
MAX_DIGITS = 20
MAX_DISTINCT = 500
"""A text column with more different values is no group: it holds names or ids."""

Measure = Literal["growth", "sum", "mean", "count", "top"]
Grain = Literal["year", "quarter", "month"]
Option = dict[str, Any]
"""A chart as Apache ECharts takes it."""

_PERIOD = re.compile(r"\d{4}(-(Q[1-4]|\d{2}(-\d{2})?))?")
_ENGLISH = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_PLAIN = re.compile(r"[-+]?\d+(\.\d+)?")
# The first measure of which a word is in the question counts.
_MEASURE_WORDS: tuple[tuple[Measure, str], ...] = (
    (
        "growth",
        r"gr[eo]w\w*|increas\w+|decreas\w+|declin\w+|rose|rise\w*|f[ae]ll\w*|shr[aiu]nk\w*|chang\w+|trend\w*|develop\w*",
    ),
    ("mean", r"average\w*|mean|typical\w*"),
    ("count", r"how many (rows|records|entries|lines)|count|number of (rows|records|entries|lines)"),
    ("top", r"most|top|best|highest|largest|biggest|least|lowest|worst|smallest|weakest|strongest|fewest"),
)
_ASCENDING = r"least|lowest|worst|smallest|weakest|fewest|declin\w+|decreas\w+|f[ae]ll\w*|shr[aiu]nk\w*|slowest"
_CHOOSING = r"which|what|who|most|least|best|worst|top|compare"
_SYNONYMS = {"revenue": r"sales|turnover|income|earn\w*|money", "units": r"sold|sells?|pieces|quantit\w+"}


class Unclear(Exception):
    """The question cannot be computed from this table; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Cells are Decimal in a number column, text in others, None where blank."""

    name: str
    kind: Literal["number", "period", "text"]
    cells: list[Any]


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out. `series` has the values of each group over `labels`, for the chart."""

    rows: list[dict[str, Any]]
    answer: str
    labels: list[str]
    series: dict[str, list[Decimal | None]]


def data_folder() -> Path:
    """Where files are read from."""
    return Path(os.environ.get("RUNWIRE_DATA") or Path(__file__).parents[1] / "data").resolve()


def read_table(file: str, folder: Path) -> dict[str, Column]:
    """Read a CSV or TSV file of the folder into typed columns. Raises Unclear."""
    try:
        path = (folder / file).resolve()  # Follows symbolic links, so that none leads out.
        size = (
            path.stat().st_size
            if path.is_relative_to(folder) and path.suffix.lower() in {".csv", ".tsv"} and path.is_file()
            else None
        )
    except (OSError, ValueError):  # A name too long, with a NUL, or of a loop of links.
        size = None
    if size is None or size > MAX_BYTES:
        there = ", ".join(sorted(str(p.relative_to(folder)) for p in folder.rglob("*.[ct]sv")))
        raise Unclear(
            f"{file[:80]!r} is no CSV or TSV file of the data folder below {MAX_BYTES // 1_000_000} MB; there are: {there}"
        )
    try:
        rows = list(_rows(path))
    except csv.Error as error:
        raise Unclear(f"{file!r} cannot be read: {error}") from error
    if len(rows) < 2:
        raise Unclear(f"{file!r} has no rows")
    names = [name.strip() for name in rows[0]]
    return {
        name: _column(name, [row[at].strip() if at < len(row) else "" for row in rows[1:]])
        for at, name in enumerate(names)
        if name
    }


def _rows(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        head = lines.readline()
        lines.seek(0)
        delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=head.count)
        yield from (row for row in csv.reader(lines, delimiter=delimiter) if any(cell.strip() for cell in row))


def _column(name: str, cells: list[str]) -> Column:
    filled = [cell for cell in cells if cell]
    a_year = re.search(r"year|period|date", name, re.IGNORECASE) is not None
    if filled and all(_PERIOD.fullmatch(cell) and (a_year or len(cell) > 4) for cell in filled):
        return Column(name, "period", [cell or None for cell in cells])
    numbers = [number(cell) for cell in cells]
    if filled and sum(value is not None for value in numbers) >= 0.9 * len(filled):
        return Column(name, "number", numbers)
    return Column(name, "text", [cell or None for cell in cells])


def number(cell: str) -> Decimal | None:
    """Read a number as people write it: 1234.5, 1,234.50, € 1 234, 12%. None for anything else."""
    text = re.sub(r"[\s$€£%]", "", cell)  # \s covers the no-break spaces that separate thousands.
    if _ENGLISH.fullmatch(text):
        text = text.replace(",", "")
    return Decimal(text) if _PLAIN.fullmatch(text) and len(text) <= MAX_DIGITS else None


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
    groups = [c for c in table.values() if c.kind == "text" and len(set(c.cells)) <= MAX_DISTINCT]
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
    return {value for value in values if _names(question, value)} if len(values) <= MAX_DISTINCT else set()


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


Values = dict[str, dict[str, list[Decimal]]]


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
        answer = f"The {plan.measure if plan.measure != 'top' else 'sum'} of {plan.value or 'rows'} is {shown(results[order[0]])}."
    elif plan.measure == "top":
        answer = f"{order[0]} has the {'lowest' if plan.ascending else 'highest'} {name}: {shown(results[order[0]])}. In order: {listed}."
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


def chart_of(outcome: Outcome, plan: Plan) -> Option:
    """Draw lines over time for growth, else bars."""
    kind = "line" if plan.measure == "growth" else "bar"
    return {
        "title": {"text": f"{plan.value if plan.measure != 'count' else 'rows'} by {plan.group_name}"},
        "tooltip": {"trigger": "axis"},
        "legend": {"show": len(outcome.series) > 1},
        "xAxis": {"type": "category", "data": outcome.labels},
        "yAxis": {"type": "value"},
        "series": [
            {"id": name, "name": name, "type": kind, "data": [None if v is None else plain(v) for v in cells]}
            for name, cells in outcome.series.items()
        ],
    }


def pieces(chart: Option) -> Sequence[Option]:
    """The chart as it grows: the frame, then a series at a time.

    Merging them in order (`setOption` does) gives the whole.
    """
    return [{**chart, "series": []}, *({"series": [series]} for series in chart["series"])]


class TableQuestion(BaseModel):
    """What to compute; what is not given is read from the question."""

    file: str = Field(default="sales.csv", description="a CSV or TSV file in the data folder")
    question: str = Field(
        default="", max_length=1000, description="in words, as: Which region grew most? Average units in 2024?"
    )
    group_by: str | None = Field(default=None, description="column whose values are compared")
    value: str | None = Field(default=None, description="column of numbers")
    period: str | None = Field(default=None, description="column of periods, as 2024-07")
    measure: Measure | None = Field(
        default=None, description="growth: first against last period; top: the largest sums"
    )
    grain: Grain | None = Field(default=None, description="width of a period")
    limit: int = Field(default=12, ge=1, le=50, description="rows in the answer, at most")


class TableAnswer(BaseModel):
    """What came out. The chart goes to people, not to the model."""

    answer: str
    table: list[dict[str, str | int | float]]
    rows_read: int
    chart: Option = Field(json_schema_extra={"artifact": True, "stream": True, "stream_id": "chart"})


def answer_of(args: TableQuestion, folder: Path) -> TableAnswer:
    """Read, plan, compute, draw. Raises Unclear."""
    table = read_table(args.file, folder)
    plan = plan_of(table, args.question, **args.model_dump(include={"group_by", "value", "period", "measure", "grain"}))
    asked = re.search(r"\btop (\d{1,2})\b", args.question)
    outcome = analyze(table, plan, min(args.limit, int(asked[1]) or 1) if asked else args.limit)
    rows_read = len(next(iter(table.values())).cells)
    return TableAnswer(answer=outcome.answer, table=outcome.rows, rows_read=rows_read, chart=chart_of(outcome, plan))


@tool(
    desc="Analyse a table (CSV), such as sales by region and product: growth, sums, averages, counts and rankings by group, with a chart",
    tags=["analytics", "data"],
    idempotent=True,
    timeout_s=30,
)
async def analyze_table(args: TableQuestion, ctx: ToolContext) -> TableAnswer:
    """Answer the question with figures and draw them, a series at a time."""
    try:
        answer = await asyncio.to_thread(answer_of, args, data_folder())
    except Unclear as unclear:
        raise ToolError(str(unclear)) from unclear
    grown = pieces(answer.chart)
    for at, piece in enumerate(grown):
        await ctx.emit_artifact(stream_id="chart", chunk=piece, done=at == len(grown) - 1, artifact_type="echarts")
    return answer
