"""The benchmarks still run: every question once, as small as it gets."""

from dataclasses import replace

import pytest

from benchmarks import beside_penguiflow, conversations, fairness, identities, plans
from benchmarks.__main__ import ALL, SMALLEST, measure
from benchmarks.long_replies import long_replies
from benchmarks.product import parts as product
from benchmarks.product.testbed import started as product_started
from benchmarks.ratio_tables import Table
from benchmarks.reading import reading
from benchmarks.rules_alone import Alone
from benchmarks.system import started


def test_our_side_beside_penguiflow() -> None:
    """Without the package: every reply is read, every answer shown, and a run of some steps played without a server."""
    outcomes = {
        name: beside_penguiflow.normalise(text, 1)["outcome"] for name, text in beside_penguiflow.REPLIES.items()
    }
    assert [name for name, outcome in outcomes.items() if outcome == "refused"] == ["cut off, 4 KB", "prose, 4 KB"]
    text = beside_penguiflow.answer(1000)
    assert [beside_penguiflow.extract(text, size, 1)["shown"] for size in (1, 7, 4000)] == [1000] * 3
    alone = Alone(20)
    assert len(alone.play()) == 20
    assert alone.run.usage.tool_calls == 20


@pytest.mark.system
@pytest.mark.xdist_group("system")
@pytest.mark.timeout(180)
async def test_every_question_is_answered() -> None:
    """Each gives a table with rows; what stands in them is no matter of a test."""
    async with started("2m") as system:
        tables = [
            reading(1, SMALLEST.megabytes),
            await long_replies(SMALLEST.megabytes, 0.2),
            *[table async for table in measure(system, SMALLEST)],
        ]
    assert {table.title[1] for table in tables} == set(ALL) - {"h"}
    assert_filled(tables)


def assert_filled(tables: list[Table]) -> None:
    """Each has rows, and a figure in every cell."""
    for table in tables:
        assert table.rows
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert "nan" not in table.text()


@pytest.mark.system
@pytest.mark.xdist_group("system")
@pytest.mark.timeout(180)
async def test_the_product_beside_a_bare_loop() -> None:
    """Every part of it but the kills, which take longest."""
    only = tuple(part for part in product.PARTS if part != "recovery")
    async with product_started() as testbed:
        tables = [table async for table in product.measure(testbed, product.SMALLEST, only)]
    assert {table.title.partition(" ")[0] for table in tables} == {"(h)"}
    assert_filled(tables)


@pytest.mark.system
@pytest.mark.xdist_group("system")
@pytest.mark.timeout(180)
async def test_a_planned_run_beside_one_of_react() -> None:
    """Both make as many calls; and a plan is checked and resolved without a system."""
    async with conversations.started("2m") as system:
        assert_filled([plans.pure(), await plans.runs(system, [2], 1)])


@pytest.mark.system
@pytest.mark.xdist_group("system")
@pytest.mark.timeout(180)
async def test_a_tenant_beside_another_that_floods() -> None:
    """The small one is answered, and every run of the other ends, in one row."""
    table = Table("(i)", fairness.COLUMNS)
    await fairness.measure(replace(fairness.SILENT, runs=20, deadline_s=2), 1, "2m", 1, 0.5, table)
    assert [row[-1] for row in table.rows] == ["20: 20 budget_exhausted"]


@pytest.mark.system
@pytest.mark.xdist_group("system")
@pytest.mark.timeout(180)
async def test_a_step_with_users_beside_one_without() -> None:
    """On two systems, the smallest runs."""
    assert_filled([await identities.compared(1, 1, 3, "2m")])
