"""Parse the announcements of tools, and choose among several announcements of one name. Pure: no bus, no clock.

Rule: an announcement can do no harm. An unusable one is refused with a reason; services that are not tools are ignored.
"""

import re
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from pydantic import ValidationError

from contracts.tools.messages import SPEC_METADATA, ToolSpec
from contracts.wire import names, subjects
from contracts.wire.base import MAX_SPEC_BYTES
from contracts.wire.faults import describe
from services.shared.json_schema.checks import InvalidSchema, check_schema
from services.shared.tools.builtin import BUILT_IN

SERVER_TAG = "mcp:"
"""Begins the tag that says which MCP server has a tool: calls go there by it, so nobody else may claim it."""
_SEMVER = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)

Rank = tuple[int, int, int, int, tuple[tuple[int, int, str], ...]]


class InvalidAnnouncement(ValueError):
    """An announced tool cannot be used; the text says why. `tool`: its name, if it can be parsed."""

    def __init__(self, reason: str, tool: str | None = None) -> None:
        super().__init__(reason)
        self.tool = tool


@dataclass(frozen=True, slots=True)
class Announcement:
    """One instance's announcement of one tool."""

    spec: ToolSpec
    digest: str
    version: str
    instance: str
    is_accepted: bool = False
    """It needs no `runwire tools accept`, since the operator has said so."""


class Discovery(Protocol):
    """Finds the tools of one kind. It sets an event when there is something new."""

    async def start(self) -> object:
        """Start to look."""

    async def stop(self) -> None:
        """Stop."""

    def announcements(self) -> list[Announcement]:
        """Return the recent announcements of all instances."""

    def refused(self) -> dict[str, str]:
        """Return why tools that were announced recently cannot be used."""

    def ended(self) -> set[str]:
        """Return the tools whose last instance has said since the last call that it ends."""

    async def tell_offered(self, tool: str, instance: str) -> None:
        """Tell an instance that its tool is in the catalogue."""


def read_announcement(data: bytes) -> list[Announcement]:
    """Return the tools that a micro service describes; empty for one without tools. Raises InvalidAnnouncement."""
    try:
        info = orjson.loads(data)
    except ValueError as error:
        raise InvalidAnnouncement(f"not JSON: {error}") from error
    endpoints = info.get("endpoints") if isinstance(info, dict) else None
    if not isinstance(endpoints, list):
        raise InvalidAnnouncement("not the description of a NATS micro service: it has no list of endpoints")
    version, instance = str(info.get("version", ""))[:64], str(info.get("id", ""))[:64]
    found = []
    for endpoint in endpoints:
        metadata = endpoint.get("metadata") if isinstance(endpoint, dict) else None
        if isinstance(metadata, dict) and SPEC_METADATA in metadata:
            text = metadata[SPEC_METADATA]
            if not isinstance(text, str) or len(text) > MAX_SPEC_BYTES:
                raise InvalidAnnouncement(f"{SPEC_METADATA} is no text of at most {MAX_SPEC_BYTES} characters")
            try:
                spec = checked(ToolSpec.model_validate_json(text))
            except (ValueError, TypeError, RecursionError) as error:
                reason = f"{SPEC_METADATA} cannot be used: {short_reason(error)}"
                raise InvalidAnnouncement(reason, _name_in(text)) from error
            if endpoint.get("subject") != subjects.tool(spec.name):
                raise InvalidAnnouncement(f"the tool {spec.name} must listen on {subjects.tool(spec.name)}")
            found.append(Announcement(spec, spec.digest(), version, instance))
    return found


def _name_in(text: str) -> str | None:
    """Return the name of a tool whose specification cannot be used."""
    try:
        found = orjson.loads(text)
        return names.checked_tool(found.get("name") if isinstance(found, dict) else None)
    except ValueError:
        return None


def checked(spec: ToolSpec, *, of_server: bool = False) -> ToolSpec:
    """Return a specification in canonical form, so that equal ones have equal digests. `of_server`: of an MCP server.

    Raises ValueError, TypeError or RecursionError.
    """
    names.checked_tool(spec.name)
    if spec.name in BUILT_IN:
        raise ValueError(f"{spec.name} is a tool of Runwire itself; choose another name")
    if not of_server and any(tag.startswith(SERVER_TAG) for tag in spec.tags):
        raise ValueError(f"a tag that begins with {SERVER_TAG} is for tools of MCP servers")
    _check("input_schema", spec.input_schema)
    if spec.input_schema.get("type", "object") != "object":
        raise ValueError("the input schema must describe an object")
    if spec.output_schema is not None:
        _check("output_schema", spec.output_schema)
    return ToolSpec.model_validate_json(spec.model_dump_json())


def _check(field: str, schema: dict[str, Any]) -> None:
    try:
        check_schema(schema)
    except InvalidSchema as error:
        raise InvalidSchema(f"{field}: {error}") from error


def choose(candidates: list[Announcement]) -> Announcement:
    """Return the announcement with the highest version; among equal versions, the one with the smallest digest.

    So all tool runners choose the same one, and a rolling update takes effect once, with its first new instance.
    Announcements of running instances take precedence over the tools file.
    """
    best = max(rank(one.version) for one in candidates)
    return min((one for one in candidates if rank(one.version) == best), key=lambda one: one.digest)


def rank(version: str) -> Rank:
    """Order versions as SemVer does. Other versions come before all of them."""
    found = _SEMVER.fullmatch(version)
    if found is None:
        return (-1, 0, 0, 0, ())
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in (found[4] or "-")[1:].split("."))
    return (int(found[1]), int(found[2]), int(found[3]), 0 if found[4] else 1, parts)


def short_reason(error: Exception) -> str:
    """Describe why a specification cannot be used, in one line."""
    if isinstance(error, ValidationError):
        return describe(error, limit=1)
    return " ".join(str(error).split())[:300]
