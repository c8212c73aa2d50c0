"""CSV files as people have them, into tables and out again, on both databases."""

import csv as csv_module
import io
from typing import Any

import pytest

from runwire.errors import ToolError
from tests.tables.conftest import Tables

#: name, file, what the table holds by column: types and cells. Each is a kind of file that is misread elsewhere.
FILES: dict[str, tuple[bytes, dict[str, tuple[str, list[Any]]]]] = {
    "utf-8 with a mark": (
        "\ufeffName;City\r\nAnna;Köln\r\n".encode(),
        {"Name": ("text", ["Anna"]), "City": ("text", ["Köln"])},
    ),
    "utf-16": (
        "Name\tCity\r\nŽofie\tBrno\r\n".encode("utf-16"),
        {"Name": ("text", ["Žofie"]), "City": ("text", ["Brno"])},
    ),
    "windows-1252": (
        "Numéro;Montant €\nn° 1;“10”\n".encode("cp1252"),
        {"Numéro": ("text", ["n° 1"]), "Montant €": ("text", ["“10”"])},
    ),
    "a late byte": (b"id,name\n" + b"1,x\n" * 3_000 + b"2,caf\xe9\n", {}),
    "lists in cells": (
        b"id;ok;tags;cost\n1;True;['a', 'b'];10.5\n2;False;['c'];7\n",
        {
            "id": ("number", [1, 2]),
            "ok": ("boolean", [True, False]),
            "tags": ("text", ["['a', 'b']", "['c']"]),
            "cost": ("number", [10.5, 7]),
        },
    ),
    "sentences": (b"key\ttext\nA 1\tthis is long\nB 2\tand this one too\n", {"key": ("text", ["A 1", "B 2"])}),
    "Excel's hint": (b"sep=;\r\nA;B\r\n1,5;x\r\n", {"A": ("text", ["1,5"]), "B": ("text", ["x"])}),
    "quotes": (b'a,b\n"say ""hi""",5\n6" pipe,7\n', {"a": ("text", ['say "hi"', '6" pipe'])}),
    "blank lines": (
        b" Name , City \n\nAnna , Bonn\n   \n\n",
        {"Name": ("text", ["Anna "]), "City": ("text", [" Bonn"])},
    ),
    "names in another case": (b"a,A\n1,2\n", {"a": ("number", [1]), "A (2)": ("number", [2])}),
    "names missing": (
        b"Name,,City,\nA,1,B,\n",
        {"Name": ("text", ["A"]), "Column 2": ("number", [1]), "City": ("text", ["B"])},
    ),
    "only a header": (b"Name,City\n", {"Name": ("text", []), "City": ("text", [])}),
    "codes": (
        b'zip,phone,code,id\n01569,"0444",007,1234567890123456\n98101,+322,42,1\n',
        {
            "zip": ("text", ["01569", "98101"]),
            "phone": ("text", ["0444", "+322"]),
            "code": ("text", ["007", "42"]),
            "id": ("text", ["1234567890123456", "1"]),
        },
    ),
    "no numbers of JSON": (
        "a,b,c,d\n1_000,１,1e400,NaN\n".encode(),
        {"a": ("text", ["1_000"]), "b": ("text", ["１"]), "c": ("text", ["1e400"]), "d": ("text", ["NaN"])},
    ),
    "no dates": (
        b"a,b,c\nvmx-15,1-3,00:10\nvmx-12,1/2,0:45\n",
        {"b": ("text", ["1-3", "1/2"]), "c": ("text", ["00:10", "0:45"])},
    ),
    "days first": (b"when\n15-01-2025\n09-01-2025\n", {"when": ("date", ["2025-01-15", "2025-01-09"])}),
    "nothing proves an order": (b"when\n03-04-2024\n", {"when": ("text", ["03-04-2024"])}),
    "decimal commas": (b"sum;x\n1.355,90;1\n9,99;1\n-2,40;1\n", {"sum": ("number", [1355.9, 9.99, -2.4])}),
    "nothing proves a comma": (b"sum;x\n1,234;1\n9,999;1\n", {"sum": ("text", ["1,234", "9,999"])}),
    "blanks of thousands": ("sum\n10\u00a0237,65\n1\u202f000,5\n".encode(), {"sum": ("number", [10237.65, 1000.5])}),
    "empty and quoted": (b'a,b\n"",1\n,2\nx,3\n', {"a": ("text", [None, None, "x"])}),
    "a late letter": (b"id\n" + b"".join(b"%d\n" % n for n in range(3000)) + b"D1\n", {}),
    "cells of formulas": (
        b"t\n=1+1\n-5\n+32 2\n@sum\n'quoted\n",
        {"t": ("text", ["=1+1", "-5", "+32 2", "@sum", "'quoted"])},
    ),
}


def imported(tables: Tables, data: bytes, **more: Any) -> Any:
    where = {} if "table_id" in more else {"name": "T"}
    return tables.call("import_csv", file=data, **where, **more)


def exported(tables: Tables, table_id: str, **more: Any) -> bytes:
    """The bytes of an export: the artifact, and the same in parts."""
    tables.call("export_csv", table_id=table_id, **more)
    whole, parts = tables.emitted("csv"), [tables.call("export_csv", table_id=table_id, page=True, **more)]
    while parts[-1]["next_cursor"]:
        cursor = parts[-1]["next_cursor"]
        parts.append(tables.call("export_csv", table_id=table_id, page=True, cursor=cursor, **more))
    assert whole == "".join(each["text"] for each in parts)
    return whole.encode()


@pytest.mark.parametrize("name", FILES)
def test_a_file_becomes_a_table(tables: Tables, name: str) -> None:
    """By all of its rows; and its export gives the same again."""
    data, expected = FILES[name]
    report = imported(tables, data)
    assert report["refused"] == 0, report
    types = {each["name"]: each["type"] for each in report["columns"]}
    found = tables.call("query_rows", table_id=report["table_id"], limit=500)
    columns = {key: (types[key], [row["cells"][key] for row in found["rows"]]) for key in expected}
    assert columns == expected
    if name == "a late byte":
        assert (report["encoding"], found["total"]) == ("windows-1252", 3_001)
    if name == "a late letter":
        assert (types, found["total"]) == ({"id": "text"}, 3001)
        assert "line 3002" in report["columns"][0]["note"]
    before = tables.call("export_csv", table_id=report["table_id"])
    file = exported(tables, report["table_id"])
    tables.call("delete_table", table_id=report["table_id"])
    again = imported(tables, file, columns=before["columns"])
    assert exported(tables, again["table_id"]) == file
    assert tables.call("query_rows", table_id=again["table_id"], limit=500)["rows"] == found["rows"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b'a,b\n1,2\n3,"4\n5,6\n', "line 3 has a quote that is not closed"),
        ("王伟,成都\n".encode("gb18030") * 2, "line 1 is not utf-8; name its encoding"),
        (b"caf\xc3\xa9\nx\nb\xe9\n", "line 3 is not utf-8"),
        (b",".join(b"c%d" % n for n in range(100_000)) + b"\n", "at most 200 columns"),
        (b"x" * 201 + b"\n1\n", "200 characters"),
    ],
)
def test_a_file_that_cannot_be_read_changes_nothing(tables: Tables, data: bytes, says: str) -> None:
    """The refusal names the line, or the limit."""
    with pytest.raises(ToolError, match=says):
        imported(tables, data)
    assert tables.call("list_tables")["tables"] == []


def test_rows_that_do_not_fit_are_reported_by_line(tables: Tables) -> None:
    """Line and reason of each; the others are there."""
    table_id = tables.table(
        Name="text", Pay={"type": "number", "required": True}, s={"type": "select", "options": ["Open"]}
    )
    data = b'Name,Pay,S\n"A\nB",1,OPEN\nD,x,\nE,2,\n6,7,Open,9\n7,,\n8,"5"5",\n9,8,Opne\n\0,1,\n10,11, open,\n'
    report = imported(tables, data, table_id=table_id)
    assert (report["imported"], report["refused"], report["mended"]) == (3, 6, 2)
    assert [(each["line"], each["column"], each["code"]) for each in report["refused_rows"]] == [
        (4, "Pay", "value_invalid"),
        (6, "", "csv_invalid"),
        (7, "Pay", "required_value_missing"),
        (8, "", "csv_invalid"),
        (9, "s", "option_invalid"),
        (10, "Name", "value_invalid"),
    ]
    assert [row["Pay"] for row in tables.rows(table_id)] == [1, 2, 11]
    booleans = tables.table("B", b="boolean")
    report = imported(tables, b"b\ntrue\nNO\nYes\n1\n0\nja\nt\n\n", table_id=booleans)
    assert [each["line"] for each in report["refused_rows"]] == [5, 6, 7, 8]


def test_many_refusals_are_listed_apart(tables: Tables) -> None:
    """The answer names the first, the report all; types that are stated are not decided by the rows."""
    data = b"name,pay\n" + b"".join(b"r%d,%s\n" % (n, b"x" if n % 50 == 1 else b"%d.5" % n) for n in range(5_000))
    report = imported(tables, data, columns={"pay": "number"})
    assert (report["imported"], report["refused"], len(report["refused_rows"])) == (4_900, 100, 20)
    assert len(list(csv_module.reader(io.StringIO(tables.emitted("report"))))) == 101
    repeated = imported(tables, data, columns={"pay": "number"})
    assert repeated == report | {"repeated": True}
    assert tables.call("describe_table", table_id=report["table_id"])["rows"] == 4_900
    more = imported(tables, b"name\nx\n", table_id=report["table_id"], import_id="second")
    assert (more["imported"], more["table_id"]) == (1, report["table_id"])


def test_an_export_holds_no_formula(tables: Tables) -> None:
    """Texts and names are escaped, numbers never; a byte order mark where it is asked for."""
    texts = ["-5", "-2+3", "+1", "\tx", "\rx", "@a", "=1", "-- note", "-1,234.56", "Ö ê 😎", "'=1"]
    columns: dict[str, Any] = {"n": "number", "=t": "text"}
    table_id = tables.table(rows=[{"n": -5, "=t": text} for text in texts], **columns)
    data = exported(tables, table_id, bom=True)
    cells = list(csv_module.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    assert cells == [
        ["n", "'=t"],
        *(
            ["-5", text]
            for text in (
                *("-5", "'-2+3", "+1", "'\tx", "'\rx", "'@a", "'=1"),
                *("'-- note", "-1,234.56", "Ö ê 😎", "''=1"),
            )
        ),
    ]
    assert data.startswith(b"\xef\xbb\xbf")
    again = tables.call("import_csv", csv=data.decode("utf-8-sig"), name="again", columns={"=t": "text"})
    assert [row["=t"] for row in tables.rows(again["table_id"])] == texts
