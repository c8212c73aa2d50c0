"""Tools that do not announce themselves: those of the tools file, and those that an operator has declared."""

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import orjson
import structlog

from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Bucket, Entry
from services.messaging.nats_connection import Subscription
from services.runtime.tasks import cancelled, is_set_within

from .announcements import Announcement, checked, short_reason

logger = structlog.get_logger(__name__)

_REREAD_INTERVAL_S = 5.0


class InvalidToolsFile(ValueError):
    """The tools file cannot be used; the text says why in one sentence."""


def read_tools_file(path: Path) -> list[Announcement]:
    """Return the tools of a JSON file, a list, or of a TOML file, under `[[tools]]`. Raises InvalidToolsFile."""
    _, content = read_document(path, InvalidToolsFile)
    entries = content.get("tools") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise InvalidToolsFile(f"{path}: expected a list of tool specifications, under `tools` in TOML")
    found = []
    for number, entry in enumerate(entries, start=1):
        try:
            spec = checked(ToolSpec.model_validate(entry))
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidToolsFile(f"{path}: tool {number}: {short_reason(error)}") from error
        found.append(Announcement(spec, spec.digest(), "", "file"))
    return found


def read_document(path: Path, invalid: type[ValueError]) -> tuple[str, Any]:
    """Return the text of a JSON or TOML file and what it holds. Raises `invalid`, with a sentence."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        return text, tomllib.loads(text) if path.suffix == ".toml" else orjson.loads(text)
    except OSError as error:
        raise invalid(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise invalid(f"{path}: {error}") from error


class DeclaredTools:
    """What `runwire tools declare` has stored in the catalogue. `changed`: set when there is something new."""

    def __init__(self, bus: Bus, changed: asyncio.Event) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, keys.CATALOGUE_BUCKET)
        self._changed = changed
        self._outdated = asyncio.Event()
        self._entries: dict[str, bytes] = {}
        self._found: dict[str, Announcement] = {}
        self._refused: dict[str, str] = {}
        self._ended: set[str] = set()
        self._subscription: Subscription
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read them, and again after each change."""

        def on_change(_key: str, _data: bytes) -> None:
            self._outdated.set()

        self._outdated.set()
        self._subscription = await self._bucket.watch(keys.declared_tool.all, on_change, reads_back=True)
        self._reader = self._bus.tasks.keep("declared_tools", self._read)

    async def stop(self) -> None:
        """Stop reading."""
        await cancelled(self._reader)
        await self._subscription.stop()

    def announcements(self) -> list[Announcement]:
        """Return them."""
        return list(self._found.values())

    def refused(self) -> dict[str, str]:
        """Return why some cannot be used."""
        return self._refused

    def ended(self) -> set[str]:
        """Return those that were taken back since the last call."""
        ended, self._ended = self._ended, set()
        return ended

    async def tell_offered(self, tool: str, instance: str) -> None:
        """Tell nobody: they are not asked whether they are there."""

    async def _read(self) -> None:
        while True:
            await is_set_within(self._outdated, _REREAD_INTERVAL_S)
            self._outdated.clear()
            try:
                entries = await self._bucket.latest(keys.declared_tool.all)
            except BusError as error:
                logger.debug("declared_tools_not_read", reason=str(error))
                continue
            if (stored := {entry.key: entry.data for entry in entries}) != self._entries:
                self._entries = stored
                self._take(entries)
                self._changed.set()

    def _take(self, entries: list[Entry]) -> None:
        before, self._found, self._refused = self._found, {}, {}
        for entry in entries:
            (name,) = keys.declared_tool.parsed(entry.key)
            try:
                spec = checked(ToolSpec.model_validate_json(entry.data))
            except (ValueError, TypeError, RecursionError) as error:
                self._refused[name] = f"its declaration cannot be used: {short_reason(error)}"
            else:
                self._found[name] = Announcement(spec, spec.digest(), "", "declared", is_accepted=True)
        self._ended |= before.keys() - self._found.keys()
