"""Put JSON values up to 1 MiB back in the place of their references, for callers who read a payload over HTTP.

Rule: what cannot be had right now, or any more, stays a reference. An answer never fails over an artifact, and waits
for a store that is away no longer than one artifact would.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Literal

import orjson
import structlog

from contracts.artifacts import ArtifactRef
from contracts.limits import MAX_HTTP_INLINE_BYTES
from contracts.payload import FinalPayload
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, StorageUnavailable
from services.shared.redaction import as_reference, from_blob

logger = structlog.get_logger(__name__)

Form = Literal["values", "refs"]
"""How artifacts stand in a payload: JSON values in their places, or references as they are in the log."""

_MOST_BYTES = 16 << 20
"""Of all values in one answer; what is beyond stays a reference."""
_MOST_BYTES_OF_AN_EVENT = 4 << 20
"""The same of one event: it waits whole for a client that reads slowly, and clients limit what they take for one."""
_MOST_BYTES_OF_STREAMS = 64 << 20
"""Of the events of all streams at once: as long as clients have not read them they are in memory."""
_AT_ONCE = 8

_Wanted = dict[tuple[str, str], ArtifactRef]


class Room:
    """Bytes that values may still take up in event streams, of all of them together."""

    def __init__(self, left: int = _MOST_BYTES_OF_STREAMS) -> None:
        self.left = left

    def take(self, size: int, held: ExitStack) -> None:
        """Take some, and give them back when `held` ends."""
        self.left -= size
        held.callback(self._give_back, size)

    def _give_back(self, size: int) -> None:
        self.left += size


async def inlined(client: ArtifactClient, tenant: str, payload: FinalPayload) -> FinalPayload:
    """Return a payload with values in the places of references."""
    wanted = _wanted(payload.artifacts, _MOST_BYTES)
    return payload.model_copy(update={"artifacts": await _with_values(client, tenant, payload.artifacts, wanted)})


async def inlined_record(client: ArtifactClient, tenant: str, room: Room, record: bytes, held: ExitStack) -> bytes:
    """Return the record that ends a run with values in the places of references; what is no such record, as it is.

    What the values take up of the room they have until `held` ends; where there is none left, references stay.
    """
    try:
        content = orjson.loads(record)
        end = content["events"][-1]
        payload = end if end["type"] == "done" else end["payload"]
        wanted = _wanted(payload["artifacts"], min(_MOST_BYTES_OF_AN_EVENT, room.left))
        room.take(sum(ref.size for ref in wanted.values()), held)
        payload["artifacts"] = await _with_values(client, tenant, payload["artifacts"], wanted)
        return orjson.dumps(content)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return record


def _wanted(artifacts: Mapping[str, Mapping[str, Any]], room: int) -> _Wanted:
    """The references whose values have a place in `room` bytes, by tool and field."""
    wanted: _Wanted = {}
    for tool, fields in artifacts.items():
        for path, value in fields.items():
            ref = as_reference(value)
            if (
                ref is not None
                and ref.json_type not in {None, "bytes"}
                and ref.size <= min(MAX_HTTP_INLINE_BYTES, room)
            ):
                wanted[tool, path] = ref
                room -= ref.size
    return wanted


async def _with_values(
    client: ArtifactClient, tenant: str, artifacts: Mapping[str, Mapping[str, Any]], wanted: _Wanted
) -> dict[str, dict[str, Any]]:
    slots = asyncio.Semaphore(_AT_ONCE)
    is_away = False

    async def fetch(ref: ArtifactRef) -> Any:
        nonlocal is_away
        async with slots:
            try:
                if is_away:
                    raise StorageUnavailable("it was not there for another one")
                stored, body = await client.read(tenant, ref.artifact_id, limit=MAX_HTTP_INLINE_BYTES)
                value = from_blob(body, stored)
                orjson.dumps(value)
            except (ArtifactFailed, ValueError, TypeError) as error:
                is_away = is_away or isinstance(error, StorageUnavailable)
                logger.info("artifact_left_as_reference", artifact_id=ref.artifact_id, error=type(error).__name__)
                return ref.model_dump(mode="json", exclude_none=True)
            return value

    values = await asyncio.gather(*(fetch(ref) for ref in wanted.values()))
    found = {tool: dict(fields) for tool, fields in artifacts.items()}
    for (tool, path), value in zip(wanted, values, strict=True):
        found[tool][path] = value
    return found
