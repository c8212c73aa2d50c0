"""The benchmarks still run: every question once, as small as it gets."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from benchmarks import conversations, fairness, identities, mcp, plans
from benchmarks.__main__ import ALL, SMALLEST, measure
from benchmarks.long_replies import long_replies
from benchmarks.product import parts as product
from benchmarks.product.testbed import started as product_started
from benchmarks.ratio_tables import Table
from benchmarks.reading import reading
from benchmarks.system import started


async def _every_question_is_answered() -> None:
    """Each gives a table with rows, but (o), which needs a browser; what stands in them is no matter of a test."""
    async with started("2m") as system:
        tables = [
            reading(1, SMALLEST.megabytes),
            await long_replies(SMALLEST.megabytes, 0.2),
            await mcp.compared(1, 5),
            *[table async for table in measure(system, SMALLEST)],
        ]
    assert {table.title[1] for table in tables} == set(ALL) - {"h", "o"}
    _assert_filled(tables)


def _assert_filled(tables: list[Table]) -> None:
    """Each has rows, and a figure in every cell."""
    for table in tables:
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert "nan" not in table.text()


async def _the_product_beside_a_bare_loop() -> None:
    """Every part of it but the kills, which take longest."""
    only = tuple(part for part in product.PARTS if part != "recovery")
    async with product_started() as testbed:
        tables = [table async for table in product.measure(testbed, product.SMALLEST, only)]
    assert {table.title.partition(" ")[0] for table in tables} == {"(h)"}
    _assert_filled(tables)


async def _a_planned_run_beside_one_of_react() -> None:
    """Both make as many calls; and a plan is checked and resolved without a system."""
    async with conversations.started("2m") as system:
        _assert_filled([plans.pure(), await plans.runs(system, [2], 1), await plans.first_tokens(system, 1)])


async def _a_tenant_beside_another_that_floods() -> None:
    """The small one is answered, and every run of the other ends, in one row."""
    table = Table("(i)", fairness.COLUMNS)
    await fairness.measure(replace(fairness.SILENT, runs=20, deadline_s=2), 1, "2m", 1, 0.5, table)
    assert [row[-1] for row in table.rows] == ["20: 20 budget_exhausted"]


async def _a_step_with_users_beside_one_without() -> None:
    """On two systems, the smallest runs."""
    _assert_filled([await identities.compared(1, 1, 3, "2m")])


@pytest.mark.chaos
@pytest.mark.parametrize(
    "benchmark",
    [
        _every_question_is_answered,
        _the_product_beside_a_bare_loop,
        _a_planned_run_beside_one_of_react,
        _a_tenant_beside_another_that_floods,
        _a_step_with_users_beside_one_without,
    ],
)
async def test_a_benchmark_runs(benchmark: Callable[[], Awaitable[None]]) -> None:
    """To its end, and with figures."""
    await benchmark()
