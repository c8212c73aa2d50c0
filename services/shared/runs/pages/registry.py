"""The registries of a deployment: pages, payload types and client actions, built in, of plug-ins and of a file.

Rule 1: all of them are checked at start. A name that nobody registered, or that two registered, stops the start.
Rule 2: an entry of the file whose name is known changes the fields that it gives, and nothing else.
Rule 3: the markers of all types are hidden on every page; where a type counts is asked afterwards.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from contracts.runs.pages import ClientAction, Page
from contracts.wire.faults import describe
from services.runtime.settings import BusSettings
from services.shared.runs.pages import page_types
from services.shared.runs.pages.page_types import PageType, Part, PayloadType, Read, Shown, as_json

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
BUILT_IN_PAGES = (TABLES_LIST, TABLE_EDIT, TABLE_VIEW)


Entry = TypeVar("Entry", PageType, PayloadType, ClientAction)
OF_PAGES = "chat"
"""The strategy of a request with a page."""
_GROUP = "runwire."
_HELP = "help"


class InvalidPages(ValueError):
    """The registries cannot be used. The message names the place and the reason."""


class UnknownPlace(Exception):
    """A request names a page, tab or subtab that there is not. `field`: which one; the text says what there is."""

    def __init__(self, where: str, given: str, known: Iterable[str]) -> None:
        self.field = where
        super().__init__(f"there is no {where} {given!r}; there are: {', '.join(sorted(known)) or 'none'}")


class PagesSettings(BusSettings):
    """Where further pages are described, for the gateway and the planner."""

    pages_file: Path | None = Field(
        default=None, description="TOML with further pages, payload types, client actions and a folder of help"
    )


@dataclass(frozen=True, slots=True)
class Pages:
    """The registries."""

    pages: Mapping[str, PageType]
    payload_types: Mapping[str, PayloadType]
    client_actions: Mapping[str, ClientAction]
    topics: Sequence[page_types.Topic] = field(default=())

    def parts(self, page: Page) -> list[Part]:
        """Return the page, its tab and its subtab, as far as the request names them. Raises UnknownPlace."""
        if (found := self.pages.get(page.name)) is None:
            raise UnknownPlace("name", page.name, self.pages)
        parts: list[Part] = [found]
        for where, name in (("tab", page.tab), ("subtab", page.subtab)):
            within: Mapping[str, Part] = found.tabs if where == "tab" else getattr(parts[-1], "subtabs", {})
            if name is not None:
                if name not in within:
                    raise UnknownPlace(where, name, within)
                parts.append(within[name])
        return parts

    def payloads(self, page: Page) -> list[str]:
        """Return the types that count there, in the order in which they win."""
        return list(dict.fromkeys(name for part in self.parts(page) for name in part.payloads))

    def actions(self, page: Page) -> list[ClientAction]:
        """Return what the client can do there, and everywhere."""
        names = [page_types.CLOSE_CHAT.name, *(name for part in self.parts(page) for name in part.client_actions)]
        return [self.client_actions[name] for name in dict.fromkeys(names)]

    def offers(self, page: Page, tool: str) -> bool:
        """Whether a tool of the agent is offered there."""
        parts = self.parts(page)
        named = [part.tools for part in parts if part.tools is not None]
        is_named = parts[0].tools is None or any(tool in tools for tools in named)
        return is_named and not any(tool in part.without_tools for part in parts)


@cache
def load_pages(file: Path | None = None) -> Pages:
    """Return the registries. A file is read once in a process.

    Raises:
        InvalidPages: the file or a plug-in is wrong, or a name is unknown, or given twice.
    """
    given = _read(file) if file is not None else {}
    pages = _merged("pages", PageType, BUILT_IN_PAGES, given)
    types = _merged("payload_types", PayloadType, page_types.BUILT_IN_PAYLOADS, given)
    actions = _merged("client_actions", ClientAction, (page_types.CLOSE_CHAT,), given)
    try:
        topics = page_types.read_topics(page_types.BUILT_IN_TOPICS)
        if file is not None and _HELP in given:
            topics += page_types.read_topics(file.parent / str(given[_HELP]))
    except (OSError, ValueError) as error:
        raise InvalidPages(f"help: {error}") from error
    found = Pages(pages, types, actions, sorted(topics, key=lambda topic: topic.order))
    _check(found)
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InvalidPages(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidPages(f"{file}: is not TOML: {error}") from None
    if unknown := given.keys() - {"pages", "payload_types", "client_actions", _HELP}:
        raise InvalidPages(f"{file}: there is no table {', '.join(sorted(unknown))}")
    return given


def _merged(table: str, kind: type[Entry], built_in: Iterable[Entry], given: Mapping[str, Any]) -> dict[str, Entry]:
    found = {each.name: each for each in built_in}
    for point in entry_points(group=_GROUP + table):
        try:
            entry = point.load()
        except Exception as error:
            raise InvalidPages(f"plug-in {point.name} ({point.value}) cannot be loaded: {error}") from error
        if not isinstance(entry, kind):
            raise InvalidPages(f"plug-in {point.name} ({point.value}) is no {kind.__name__}")
        if entry.name in found:
            raise InvalidPages(f"plug-in {point.name} ({point.value}): {entry.name} is registered already")
        found[entry.name] = entry
    entries = given.get(table, {})
    if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
        raise InvalidPages(f"{table}: must hold a table for each name")
    for name, fields in entries.items():
        known = {} if name not in found else {each: getattr(found[name], each) for each in found[name].model_fields_set}
        aliased = {"schema": known.pop("data_schema")} if "data_schema" in known else {}
        try:
            found[name] = kind.model_validate({**known, **aliased, **fields, "name": name})
        except ValidationError as error:
            raise InvalidPages(f"{table}.{name}: {describe(error, limit=None)}") from None
    return found


def _check(found: Pages) -> None:
    markers = Counter([*page_types.SUGGESTIONS, *(each.marker for each in found.payload_types.values() if each.marker)])
    for marker in (marker for marker, count in markers.items() if count > 1):
        raise InvalidPages(f"the marker {marker} belongs to two types")
    for name, page in found.pages.items():
        parts: list[tuple[str, Part]] = [(f"page {name}", page)]
        for tab_name, tab in page.tabs.items():
            parts.append((f"page {name}, tab {tab_name}", tab))
            parts += [(f"page {name}, subtab {tab_name}.{each}", part) for each, part in tab.subtabs.items()]
        for where, part in parts:
            _require(where, "payload type", part.payloads, found.payload_types)
            _require(where, "client action", part.client_actions, found.client_actions)
    for topic in found.topics:
        _require(f"help topic {topic.title!r}", "page", topic.pages, found.pages)


def _require(where: str, what: str, names: Iterable[str], known: Mapping[str, BaseModel]) -> None:
    for name in names:
        if name not in known:
            raise InvalidPages(f"{where}: there is no {what} {name!r}; there are: {', '.join(sorted(known))}")
