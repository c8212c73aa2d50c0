"""Pages (persona, what is shown, and which payloads, tools and actions count), help topics, and types of payloads.

Rule 1: a page reads by tools, as anybody does. It says which calls it needs (`reads`), and makes a text of their
results (`context`); both are pure, and whoever opens the run makes the calls.
Rule 2: what a page shows is bounded, and everything in it is data: cells are JSON.

A help topic is a Markdown file with TOML front matter between lines of `+++`: `title` and `summary`; `roles` and
`pages` that the topic is for (none: all), and `order` among the topics.

A type of payloads says what a model calls them where it marks them in its text, and how it writes them. The envelope is
what can be checked of a proposal without a table; the service of the tables checks the rest against the table as it is
then.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field

from contracts.runs.pages import ClientAction, Page
from contracts.runs.requests import ToolName
from services.shared.json_schema.checks import InvalidSchema, check_schema, complaints

BUILT_IN_TOPICS = Path(__file__).parent / "help"
_MARK = "+++\n"
SUGGESTIONS = ("SUGGESTED_VALUES", "SUGGESTED_ACTIONS")
"""Their markers count on every page."""
MODES = ("create", "update")
MAX_SUMMARY_CHARACTERS = 300
MAX_OPERATIONS = 1000
_NOUNS = {
    "add": "addition",
    "update": "update",
    "delete": "deletion",
    "modify": "modification",
    "remove": "removal",
    "reorder": "reorder",
}
Data = Mapping[str, Any]


class Topic(BaseModel):
    """One file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1)
    summary: str = ""
    roles: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    order: int = 0
    text: str


def read_topics(folder: Path) -> list[Topic]:
    """Read all topics of a folder, by `order` and file name. Raises OSError, and ValueError that names the file."""
    found = []
    for file in sorted(each for each in folder.iterdir() if each.suffix == ".md"):
        before, *parts = file.read_text(encoding="utf-8").split(_MARK, 2)
        if before or len(parts) != 2:  # noqa: PLR2004, front matter and text
            raise ValueError(f"{file}: does not begin with front matter between two lines of +++")
        try:
            found.append(Topic.model_validate({**tomllib.loads(parts[0]), "text": parts[1].strip()}))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    return sorted(found, key=lambda topic: topic.order)


def help_text(topics: Iterable[Topic], page: str, role: str) -> str:
    """Return the contents list of a role's topics, then the texts of those that are for this page."""
    mine = [topic for topic in topics if not topic.roles or role in topic.roles]
    contents = [f"- {topic.title}" + (f": {topic.summary}" if topic.summary else "") for topic in mine]
    texts = [f"{topic.title}\n{topic.text}" for topic in mine if not topic.pages or page in topic.pages]
    return "\n\n".join(filter(None, ["\n".join(["Topics:", *contents]) if contents else "", *texts]))


CLOSE_CHAT = ClientAction(name="close_chat", description="Closes the chat.")
"""It counts on every page."""
MAX_CELL_CHARACTERS = 300
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Read(_Entry):
    """A call of a tool that changes nothing."""

    tool: ToolName
    args: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows: a text for the model; of a table its version and columns, `{id, name, type, required}`."""

    text: str
    base_version: int | None = None
    columns: list[dict[str, Any]] | None = None


Builder = Callable[[Page, Sequence[Any]], Shown | str]
"""Makes what is shown of the results of the reads, in their order; None for one that failed."""


class Part(_Entry):
    """What a page, a tab or a subtab adds."""

    persona: str = ""
    payloads: tuple[Name, ...] = ()
    tools: tuple[ToolName, ...] | None = Field(default=None, description="null: all of the agent")
    without_tools: tuple[ToolName, ...] = Field(default=(), description="are not offered, whoever names them")
    client_actions: tuple[Name, ...] = ()


class Tab(Part):
    """A tab of a page."""

    subtabs: dict[Name, Part] = {}


class PageType(Part):
    """A page. `reads` and `context` may be fixed, or functions of the request's page."""

    name: Name
    description: str = ""
    tabs: dict[Name, Tab] = {}
    reads: Callable[[Page], Sequence[Read]] | tuple[Read, ...] = ()
    context: Builder | str = Field(default="", description="a text; the results of the reads follow")

    def reads_of(self, page: Page) -> Sequence[Read]:
        """Return the calls that the page needs for what it shows."""
        return self.reads(page) if callable(self.reads) else self.reads

    def shown(self, page: Page, results: Sequence[Any]) -> Shown:
        """Return what the page shows. `results`: of its reads; None for one that failed."""
        if callable(self.context):
            found = self.context(page, results)
            return found if isinstance(found, Shown) else Shown(found)
        read = zip(self.reads_of(page), results, strict=True)
        return Shown(
            "\n".join(
                filter(None, [self.context, *(f"{each.tool}: {as_json(found)}" for each, found in read if found)])
            )
        )


def as_json(value: Any) -> str:
    """Return a value as JSON on one line, with long texts cut."""
    return orjson.dumps(_cut(value)).decode()


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_CELL_CHARACTERS:
        return f"{value[:MAX_CELL_CHARACTERS]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {str(name): _cut(each) for name, each in value.items()}
    return [_cut(each) for each in value] if isinstance(value, list) else value


class PayloadType(BaseModel):
    """One type. In Python it may have a parser, and what makes one line about data; else its `schema` decides."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")
    marker: str = Field(default="", pattern=r"^([A-Z][A-Z0-9_]{0,63})?$", description="empty: tools alone make it")
    description: str = ""
    instructions: str = Field(default="", description="how the model writes it, and when")
    data_schema: dict[str, Any] = Field(default_factory=dict, alias="schema")
    source: Literal["llm", "tool"] = "llm"
    parse: Callable[[Data], list[str]] | None = Field(default=None, description="the codes of what is wrong with data")
    summarize: Callable[[Data], str] | None = None

    def model_post_init(self, context: Any, /) -> None:
        """Refuse a type that nobody can write, and a schema that cannot be used."""
        del context
        if self.source == "llm" and not self.marker:
            raise ValueError("needs a marker, by which the model writes it")
        try:
            check_schema(self.data_schema)
        except InvalidSchema as error:
            raise ValueError(f"schema: {error}") from error

    def faults(self, data: Data) -> list[str]:
        """Return the codes of what is wrong with data, as far as it can be said without the application."""
        if self.parse is not None:
            try:
                return [str(code) for code in self.parse(data)]
            except Exception:  # noqa: BLE001, a plug-in may raise anything
                return ["payload_invalid"]
        return ["payload_invalid"] if self.data_schema and complaints(data, self.data_schema) else []

    def summary(self, data: Any) -> str:
        """Return one line about data, which never fails."""
        try:
            text = self.description if self.summarize is None else str(self.summarize(data))
        except Exception:  # noqa: BLE001, a plug-in may raise anything
            text = self.description
        return one_line(text, MAX_SUMMARY_CHARACTERS)


def one_line(text: str, limit: int) -> str:
    """Return a text as one line of at most `limit` characters."""
    line = " ".join(text.splitlines())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _faults_of_rows(data: Data) -> list[str]:
    operations = data.get("operations")
    if isinstance(operations, list) and operations:
        return ["operations_too_many"] if len(operations) > MAX_OPERATIONS else []
    return ["operations_missing" if operations is None else "operations_empty"]


def _faults_of_columns(data: Data) -> list[str]:
    mode = data.get("mode")
    wrong = [] if mode in MODES else ["mode_missing" if mode is None else "mode_invalid"]
    return wrong + _faults_of_rows(data)


def counted(nouns: Iterable[str]) -> str:
    """Return how many there are of each noun, `2 additions, 1 update`, in the order in which they come."""
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in Counter(nouns).items())


def _counted(data: Data) -> str:
    """Count operations by their action, in the order in which the actions come."""
    return counted(_NOUNS.get(each["action"], each["action"]) for each in data.get("operations") or [])


def _summary_of_columns(data: Data) -> str:
    what = _counted(data) or "empty proposal"
    return f'Create table: "{data["table_name"]}" — {what}' if data["mode"] == "create" else f"Schema proposal: {what}"


_OPERATION = {"type": "object", "required": ["action"], "properties": {"action": {"type": "string"}}}
SCHEMA_PROPOSAL = PayloadType(
    name="schema_proposal",
    marker="SCHEMA_PROPOSAL",
    description="A proposal to make a table or to change its columns",
    schema={
        "type": "object",
        "required": ["mode", "operations"],
        "properties": {
            "mode": {"enum": list(MODES)},
            "operations": {"type": "array", "minItems": 1, "items": _OPERATION},
            "table_name": {"type": "string"},
            "table_description": {"type": "string"},
            "sample_rows": {"type": "array", "items": {"type": "object"}},
            "reasoning": {"type": "string"},
        },
    },
    instructions="""\
SCHEMA_PROPOSAL: a table to make, or other columns of the table that is open. The user reviews it as a whole.
A new table ("mode": "create") has a name, a description, its columns as "add" operations, and 2 or 3 sample rows by \
the names of the columns:
SCHEMA_PROPOSAL: {"mode": "create", "table_name": "Contacts", "table_description": "People we talk to", "operations": \
[{"action": "add", "column": {"name": "Name", "type": "text", "required": true}}, {"action": "add", "column": \
{"name": "Status", "type": "select", "options": ["open", "done"], "filterDisplay": "tab"}}], "sample_rows": \
[{"Name": "Ann", "Status": "open"}, {"Name": "Bo", "Status": "done"}], "reasoning": "Who they are and where it stands."}
Other columns ("mode": "update") name the columns that exist by their ids:
SCHEMA_PROPOSAL: {"mode": "update", "operations": [{"action": "add", "column": {"name": "Due", "type": "date"}, \
"after_column_id": "col_1"}, {"action": "modify", "column_id": "col_2", "changes": {"name": "State", "options": \
["open", "done", "late"]}}, {"action": "remove", "column_id": "col_3"}, {"action": "reorder", "column_id": "col_4", \
"after_column_id": "col_1"}]}
- Types are text, number, date, boolean and select. A select needs "options"; in a change they are the whole list.
- "remove" loses what the column holds: propose it only where the user asks for it.""",
    parse=_faults_of_columns,
    summarize=_summary_of_columns,
)
DATA_PROPOSAL = PayloadType(
    name="data_proposal",
    marker="DATA_PROPOSAL",
    description="A proposal to change rows",
    schema={
        "type": "object",
        "required": ["operations"],
        "properties": {
            "operations": {"type": "array", "minItems": 1, "items": _OPERATION},
            "reasoning": {"type": "string"},
        },
    },
    instructions="""\
DATA_PROPOSAL: rows to add, change or delete in the table that is open. The user chooses which of them are applied.
DATA_PROPOSAL: {"operations": [{"action": "add", "data": {"Name": "Cy", "Status": "open"}}, {"action": "update", \
"row_id": 7, "changes": {"Status": "done"}}, {"action": "delete", "row_id": 9}], "reasoning": "As the list says."}
- Columns are named as in the context; "row_id" is the number behind "Row #". Never invent a row id: find rows that \
are not in the context with query_rows.
- Give every required column of a new row. A date is YYYY-MM-DD, a number a JSON number, a select one of its options; \
null clears an optional cell.
- Name a row in one operation only. Propose for two rows or more, or where the user wants to see it first; one row \
that the user asked for plainly may be written with create_row, update_row or delete_row.""",
    parse=_faults_of_rows,
    summarize=lambda data: f"Data proposal: {_counted(data) or 'empty'}",
)
BUILT_IN_PAYLOADS = (SCHEMA_PROPOSAL, DATA_PROPOSAL)


def summary(name: str, data: Any, types: Sequence[PayloadType] = BUILT_IN_PAYLOADS) -> str:
    """Return one line about a payload, which never fails."""
    return next((each.summary(data) for each in types if each.name == name), f"Unknown payload type: {name}")


def manifest(payloads: Sequence[Data]) -> str | None:
    """Return the list of a conversation's payloads, `payload_id` and `summary` each; None if there are none."""
    lines = [
        f"- [{each['payload_id']}] {each['summary']}"
        for each in payloads
        if each.get("payload_id") and each.get("summary")
    ]
    return "\n".join(["AVAILABLE PAYLOADS (use get_payload tool to retrieve full data):", *lines]) if lines else None
