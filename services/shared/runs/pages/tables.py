"""The pages of the tables service: the list of tables, the columns of one, and its rows."""

from collections.abc import Sequence
from typing import Any

from contracts.runs.pages import Page
from services.shared.runs.pages.page_types import PageType, Read, Shown, as_json

SHOWN_TABLES, SHOWN_ROWS, SHOWN_SELECTED, SHOWN_OPTIONS = 100, 20, 50, 50
MAX_ROWS_CHARACTERS = 16_000
MAKES_TABLES = ("create_table", "delete_table", "import_csv")
"""Tools that are not offered on these pages: there a person reviews tables and columns as proposals."""
_NO_TABLE = "No table is open."


def _tables_list(_: Page, results: Sequence[Any]) -> str:
    [found] = results
    if found is None:
        return ""
    lines = [
        f"- {as_json(each['name'])} [{each['table_id']}]: {each['columns']} columns, {each['rows']} rows"
        + (f", {as_json(each['description'])}" if each["description"] else "")
        for each in found["tables"]
    ]
    more = ["(There are more; list_tables lists them.)"] if found["next"] is not None else []
    return "\n".join([f"Tables ({len(lines)}{'+' if more else ''}):", *(lines or ["(none yet)"]), *more])


def _reads_of_table(page: Page) -> list[Read]:
    return [] if page.table_id is None else [Read(tool="describe_table", args={"table_id": page.table_id})]


def _reads_of_rows(page: Page) -> list[Read]:
    if page.table_id is None:
        return []
    rows = {"table_id": page.table_id, "limit": SHOWN_ROWS}
    reads = [*_reads_of_table(page), Read(tool="query_rows", args=rows)]
    if page.selection:
        chosen = {"column": "row_id", "op": "in", "value": page.selection[:SHOWN_SELECTED]}
        reads.append(Read(tool="query_rows", args={**rows, "limit": SHOWN_SELECTED, "filters": [chosen]}))
    return reads


def _columns(table: dict[str, Any]) -> list[str]:
    lines = [
        f"Table: {as_json(table['name'])} [{table['table_id']}], version {table['version']}",
        *([f"Description: {as_json(table['description'])}"] if table["description"] else []),
        f"Columns ({len(table['columns'])}):",
    ]
    for each in table["columns"]:
        facts = [each["type"], "required" if each["required"] else "optional"]
        if options := each["options"]:
            more = ", …" if len(options) > SHOWN_OPTIONS else ""
            facts.append(f"options {as_json(options[:SHOWN_OPTIONS])}{more}")
        if each["filterDisplay"]:
            facts.append(f"filter as {each['filterDisplay']}")
        lines.append(f"- {as_json(each['name'])} [{each['column_id']}]: {', '.join(facts)}")
    return lines


def _shown(table: dict[str, Any], lines: Sequence[str], version: int) -> Shown:
    columns = [
        {"id": each["column_id"], **{field: each[field] for field in ("name", "type", "required")}}
        for each in table["columns"]
    ]
    return Shown("\n".join(lines), version, columns)


def _table_edit(_: Page, results: Sequence[Any]) -> Shown:
    if not results or (table := results[0]) is None:
        return Shown("" if results else _NO_TABLE)
    count = table["rows"]
    note = f"Rows: {count}." + (" Removing a column, or changing its type, may lose what they hold." if count else "")
    return _shown(table, [*_columns(table), note], table["version"])


def _rows(found: dict[str, Any]) -> list[str]:
    """Return a line for each row, as many as there is room for."""
    lines, size = [], 0
    for row in found["rows"]:
        lines.append(f"Row #{row['row_id']}: {as_json(row['cells'])}")
        size += len(lines[-1])
        if size > MAX_ROWS_CHARACTERS and len(lines) > 1:
            return lines[:-1]
    return lines


def _table_view(page: Page, results: Sequence[Any]) -> Shown:
    if not results or (table := results[0]) is None:
        return Shown("" if results else _NO_TABLE)
    lines, version = [*_columns(table), f"Rows: {table['rows']}"], table["version"]
    if (found := results[1]) is not None:
        rows = _rows(found)
        lines += [*rows, f"Showing {len(rows)} of {table['rows']}."]
        # The table may have changed between the reads: what was read before is then refused, and not overwritten.
        version = min(version, found["version"])
    if page.selection:
        numbers = ", ".join(f"#{each}" for each in page.selection)
        lines.append(f"Selected rows ({len(page.selection)}): {numbers}")
        known = set(lines)
        lines += [row for row in (_rows(results[2]) if results[2] is not None else ()) if row not in known]
    lines += [f"Active filters: {as_json(page.filters)}"] if page.filters else []
    lines += [f"Sorted by: {as_json(page.sort)}"] if page.sort else []
    return _shown(table, lines, version)


_REVIEW = (
    "You never change a table yourself: you propose, and the user applies or dismisses the proposal. Say what you "
    "propose in a sentence, and do not claim that it is done."
)
TABLES_LIST = PageType(
    name="tables_list",
    description="All tables",
    persona=f"""\
The user sees the list of their tables. Help them to find the right one, and to make a new one: ask what they want to \
keep track of where it is not clear, then propose a table with the columns it needs, few and well named. Prefer a \
select to a text where values repeat. {_REVIEW}""",
    payloads=("schema_proposal",),
    without_tools=MAKES_TABLES,
    reads=(Read(tool="list_tables", args={"limit": SHOWN_TABLES}),),
    context=_tables_list,
)
TABLE_EDIT = PageType(
    name="table_edit",
    description="The columns of a table",
    persona=f"""\
The user changes the columns of a table. Propose only what they ask for, keep ids of columns, and say where data would \
be lost. {_REVIEW}""",
    payloads=("schema_proposal",),
    without_tools=MAKES_TABLES,
    reads=_reads_of_table,
    context=_table_edit,
)
TABLE_VIEW = PageType(
    name="table_view",
    description="The rows of a table",
    persona=f"""\
The user works with the rows of a table. Answer questions about them from the context where it holds all rows that \
count, else from query_rows, with its aggregates for figures. Propose rows where the user wants to add, fill in, clean \
or delete some; "these" and "the selected rows" are the selected ones. {_REVIEW}""",
    payloads=("schema_proposal", "data_proposal"),
    without_tools=MAKES_TABLES,
    reads=_reads_of_rows,
    context=_table_view,
)
BUILT_IN = (TABLES_LIST, TABLE_EDIT, TABLE_VIEW)
