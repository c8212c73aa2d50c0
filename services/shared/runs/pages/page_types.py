"""What a page is: its persona, what it shows, and the payloads, tools and client actions that count there.

Rule 1: a page reads by tools, as anybody does. It says which calls it needs (`reads`), and makes a text of their
results (`context`); both are pure, and whoever opens the run makes the calls.
Rule 2: what a page shows is bounded, and everything in it is data: cells are JSON.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from contracts.runs.pages import ClientAction, Page
from contracts.runs.requests import ToolName

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
