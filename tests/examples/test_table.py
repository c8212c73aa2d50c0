"""The table tool: real figures from a file, whichever way they are asked for."""

import csv
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from examples.demo.data.make_sales import sales
from examples.demo.table import TableQuestion, analyze_table, answer_of, pieces
from examples.demo.tables.columns import Unclear, number, read_table
from runwire import ToolError
from runwire.testing import RecordingContext

DATA = Path(__file__).parents[2] / "examples" / "demo" / "data"

SMALL = """month;shop;sold;income
2023-01;Nord;1;"1,000.50"
2023-02;Nord;2;1 000
2023-01;Süd;4;€ 250
2023-02;Süd;;
2024-01;Nord;3;1100
2024-01;Süd;8;500
2024-02;Nord;4;
2024-02;Süd;16;1000
"""


def ask(question: str, folder: Path = DATA, **given: Any) -> Any:
    """The tool's answer, without a server."""
    return answer_of(TableQuestion(question=question, **given), folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with one small file."""
    (tmp_path / "small.csv").write_text(SMALL, encoding="utf-8-sig")
    return tmp_path


def by_hand(group: str, value: str, **where: str) -> dict[str, dict[str, Decimal]]:
    """Sums per group and year, in the plainest way."""
    sums: dict[str, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    with (DATA / "sales.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row[value] and all(row[name] == wanted for name, wanted in where.items()):
                sums[row[group]][row["month"][:4]] += Decimal(row[value].replace(",", ""))
    return sums


def test_the_shipped_table_is_what_the_script_writes() -> None:
    """Nobody has changed it by hand."""
    assert (DATA / "sales.csv").read_text() == sales()


def test_which_region_grew_most() -> None:
    """Whole years are compared, since the months are seasonal; the order and figures are those of a plain sum."""
    found = ask("Which region grew most?")
    sums = by_hand("region", "revenue")
    growth = {region: (years["2024"] - years["2022"]) / years["2022"] * 100 for region, years in sums.items()}
    assert [row["region"] for row in found.table] == sorted(growth, key=growth.__getitem__, reverse=True)
    for row in found.table:
        assert row["2022"] == pytest.approx(float(sums[row["region"]]["2022"]))
        assert row["2024"] == pytest.approx(float(sums[row["region"]]["2024"]))
        assert row["change_percent"] == pytest.approx(float(growth[row["region"]]), abs=0.05)
    assert found.answer.startswith(
        "East grew most: its revenue rose by 51.9% from 522,886.21 in 2022 to 794,008.90 in 2024."
    )
    assert "22 blank cells were left out" in found.answer
    assert found.rows_read == 1080
    assert found.chart["xAxis"]["data"] == ["2022", "2023", "2024"]
    assert found.chart["series"][0]["name"] == "East"
    assert len(found.chart["series"][0]["data"]) == 3


@pytest.mark.parametrize(
    ("question", "first_row", "answer"),
    [
        ("Which region grew fastest between the first and the last month?", {"region": "East"}, "in 2022-01 to"),
        ("Which product sold most in the North region?", {"product": "Lights"}, "(Only North.)"),
        (
            "average revenue per product in 2024",
            {"product": "Bicycles"},
            "average revenue by product: Bicycles 30,975.51",
        ),
        ("What is the total revenue?", {"revenue": 11178855.82}, "The sum of revenue is 11,178,855.82."),
        ("How many rows are there per region?", {"region": "East", "rows": 216}, "rows by region: East 216"),
        ("Which month had the highest revenue in 2023?", {"month": "2023-06"}, "2023-06 has the highest revenue"),
        ("units by quarter", {"quarter": "2022-Q1", "units": 8593}, "units by quarter"),
        ("growth of tents by region between 2022 and 2023", {"region": "East", "2022": 96445.87}, "(Only Tents.)"),
        ("Compare North and South", {"region": "North"}, "(Only North, South.)"),
    ],
)
def test_questions_in_words(question: str, first_row: dict[str, Any], answer: str) -> None:
    """Columns, values, years and measures are read from the words."""
    found = ask(question)
    assert first_row.items() <= found.table[0].items()
    assert answer in found.answer


def test_the_number_of_rows_can_be_said_in_words() -> None:
    """Or by `limit`."""
    assert len(ask("top 3 regions by units").table) == 3
    assert len(ask("Which product has the highest revenue?", limit=2).table) == 2


def test_what_is_named_is_not_guessed(folder: Path) -> None:
    """Names of columns, a measure and a grain count, whatever the words say."""
    found = ask("most", folder, file="small.csv", group_by="shop", value="sold", measure="mean", period="month")
    assert found.table == [{"shop": "Süd", "average sold": 9.33}, {"shop": "Nord", "average sold": 2.5}]
    found = ask("", folder, file="small.csv", group_by="month", value="income", measure="sum", grain="year")
    assert found.table == [{"year": "2023", "income": 2250.5}, {"year": "2024", "income": 2600}]


def test_growth_leaves_out_who_has_no_beginning(folder: Path) -> None:
    """Süd has no value in the last month of 2023, which changes nothing for the years; Nord has none in 2024-02."""
    found = ask("growth by shop", folder, file="small.csv", value="income")
    assert [(row["shop"], row["change_percent"]) for row in found.table] == [("Süd", 500), ("Nord", -45)]
    monthly = ask("growth by shop", folder, file="small.csv", value="income", grain="month")
    assert [row["shop"] for row in monthly.table] == ["Süd"]
    assert "2 blank cells were left out" in monthly.answer


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1234.5", "1234.5"),
        ("1,234,567.80", "1234567.80"),
        ("1\N{NARROW NO-BREAK SPACE}234", "1234"),
        ("-12%", "-12"),
        ("1,23", None),
        ("1e5", None),
        ("9" * 30, None),
        ("", None),
    ],
)
def test_numbers_as_people_write_them(cell: str, value: str | None) -> None:
    """What is ambiguous is no number."""
    assert number(cell) == (None if value is None else Decimal(value))


@pytest.mark.parametrize(
    "file",
    [
        "../secret.csv",
        "/etc/passwd",
        "link.csv",
        "no.csv",
        "a\0.csv",
        "x" * 5000 + ".csv",
        "notes.txt",
    ],
)
def test_files_come_from_the_data_folder_only(tmp_path: Path, file: str) -> None:
    """Links do not lead out either; the refusal names what there is."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "small.csv").write_text(SMALL)
    (data / "notes.txt").write_text("a,b\n1,2")
    (tmp_path / "secret.csv").write_text("a,b\n1,2")
    (data / "link.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(Unclear, match=r"no CSV or TSV file of the data folder.*small\.csv"):
        read_table(file, data)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"value": "price"}, "there is no column 'price'; the columns are month, region, product, units, revenue"),
        ({"value": "region"}, "sum needs a column of numbers"),
        ({"question": "revenue in 1999"}, "no row is left"),
        ({"question": "growth in 2023 by region"}, "growth needs two periods, there is only 2023"),
    ],
)
async def test_what_cannot_be_computed_is_said(given: dict[str, Any], reason: str) -> None:
    """The model can ask again, better."""
    with pytest.raises(ToolError) as refusal:
        await analyze_table.run(given, RecordingContext())
    assert reason in refusal.value.reason


@pytest.mark.parametrize("text", ["", "a\n", "a,b\n\n\n", "\0\0", '"' + "x" * 200_000])
def test_files_that_are_no_tables(tmp_path: Path, text: str) -> None:
    """They are refused, in one sentence."""
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(Unclear):
        ask("total", tmp_path, file="bad.csv")


async def test_the_chart_grows() -> None:
    """A frame, then a series at a time; merged by id they are the chart of the result."""
    context = RecordingContext()
    found = await analyze_table(TableQuestion(question="Which region grew most?"), context)
    shown = context.pieces["chart"]
    assert shown == list(pieces(found.chart))
    merged = {**shown[0], "series": [series for piece in shown[1:] for series in piece["series"]]}
    assert merged == found.chart
    assert context.finished == {"chart"}
    schema = analyze_table.spec.output_schema
    assert schema is not None
    assert {"artifact": True, "stream": True, "stream_id": "chart"}.items() <= schema["properties"]["chart"].items()
