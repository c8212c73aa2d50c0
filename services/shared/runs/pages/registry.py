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
from services.shared.runs.pages import page_types, payload_types, tables
from services.shared.runs.pages.page_types import CLOSE_CHAT, PageType, Part, Topic
from services.shared.runs.pages.payload_types import SUGGESTIONS, PayloadType

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
    topics: Sequence[Topic] = field(default=())

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
        names = [CLOSE_CHAT.name, *(name for part in self.parts(page) for name in part.client_actions)]
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
    pages = _merged("pages", PageType, tables.BUILT_IN, given)
    types = _merged("payload_types", PayloadType, payload_types.BUILT_IN, given)
    actions = _merged("client_actions", ClientAction, (CLOSE_CHAT,), given)
    try:
        topics = page_types.read_topics(page_types.BUILT_IN)
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
    markers = Counter([*SUGGESTIONS, *(each.marker for each in found.payload_types.values() if each.marker)])
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
