"""What a page is: its persona, what it shows, and the payloads, tools and client actions that count there.

Rule 1: a page reads by tools, as anybody does. It says which calls it needs (`reads`), and makes a text of their
results (`context`); both are pure, and whoever opens the run makes the calls.
Rule 2: what a page shows is bounded, and everything in it is data: cells are JSON.

The help registry: Markdown files, each a topic, with TOML front matter between lines of `+++`.

`title` and `summary`; `roles` and `pages` that the topic is for (none: all), and `order` among the topics.
"""

import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from contracts.runs.pages import ClientAction, Page
from contracts.runs.requests import ToolName

BUILT_IN = Path(__file__).parent / "help"
_MARK = "+++\n"


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
