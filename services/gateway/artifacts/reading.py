"""Which artifacts a caller may see, and their JSON values in place of references, for clients that read a payload.

An artifact belongs to the user whose key uploaded it, else to the user of its run, else to that of its session. A
caller sees all of its tenant, or those of the user that its key is pinned to.

Rule: what cannot be read now, no longer exists or is larger than 1 MiB stays a reference. An answer never fails because
of an artifact, and waits for an unavailable store no longer than one artifact would.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import structlog

from contracts.artifacts import SAID, ArtifactRef, StoredArtifact
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunStatus
from contracts.wire.base import MAX_HTTP_INLINE_BYTES
from services.gateway.auth.caller import Caller
from services.gateway.edge.routing import Form
from services.gateway.runs.reader import RunReader
from services.gateway.sessions.reader import SessionReader
from services.runtime import exact_json
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound, StorageUnavailable
from services.shared.redaction.stored_values import as_reference, from_blob

logger = structlog.get_logger(__name__)
MAX_ANSWER_BYTES = 16 << 20
"""Limit of all values in one answer together; the others stay references."""
MAX_EVENT_BYTES = 4 << 20
"""Limit of all values in one event: it is in memory until a slow client has read it, and clients limit its size."""
MAX_UNREAD_BYTES = 64 << 20
"""Limit of the values in the last events of all streams, which are in memory until the clients have read them."""
MAX_PARALLEL_READS = 8


class ArtifactAccess:
    """Finds the artifacts that callers may see."""

    def __init__(self, artifacts: ArtifactClient, runs: RunReader, sessions: SessionReader) -> None:
        self._artifacts = artifacts
        self._runs = runs
        self._sessions = sessions

    async def get(self, caller: Caller, artifact_id: str) -> StoredArtifact:
        """Return the metadata of an artifact. Every route about one artifact passes here.

        Raises ArtifactNotFound, also for one of another user or of a deleted run, StorageUnavailable and BusError.
        """
        stored = await self._artifacts.head(caller.tenant, artifact_id)
        if stored.ref.namespace == SAID:
            raise ArtifactNotFound
        if stored.run_id is not None and await self._runs.is_deleted(caller.tenant, stored.run_id):
            raise ArtifactNotFound
        if caller.user_id is not None and not await self.visible(caller, [stored]):
            raise ArtifactNotFound
        return stored

    async def visible(self, caller: Caller, artifacts: Iterable[StoredArtifact]) -> list[StoredArtifact]:
        """Return those of a tenant's artifacts that the caller may see, each with its user. Raises BusError."""
        artifacts = list(artifacts)
        places = {(each.run_id, each.session_id) for each in artifacts if each.user_id is None}
        found = await asyncio.gather(*(self._user_of(caller.tenant, *place) for place in places))
        users = dict(zip(places, found, strict=True))
        owned = [
            each.model_copy(update={"user_id": each.user_id or users[each.run_id, each.session_id]})
            for each in artifacts
        ]
        return [each for each in owned if caller.may_see(each.user_id) and each.ref.namespace != SAID]

    async def _user_of(self, tenant: str, run_id: str | None, session_id: str | None) -> str | None:
        if run_id is not None:
            run = await self._runs.find(tenant, run_id)
            request = run.request() if run is not None else None
            return request.user_id if request is not None else None
        session = await self._sessions.find(tenant, session_id) if session_id is not None else None
        return session.user_id if session is not None else None


_References = dict[tuple[str, str], ArtifactRef]
"""By tool and field."""


class Inliner:
    """Reads the values of artifacts, with limits."""

    def __init__(self, artifacts: ArtifactClient) -> None:
        self._artifacts = artifacts
        self.free_bytes = MAX_UNREAD_BYTES
        """Bytes that may still be held for event streams."""

    async def shown(self, tenant: str, status: RunStatus, form: Form) -> RunStatus:
        """Return the status of a run with its payload in this form."""
        if form == "refs" or status.payload is None:
            return status
        return status.model_copy(update={"payload": await self.payload(tenant, status.payload)})

    async def payload(self, tenant: str, payload: FinalPayload) -> FinalPayload:
        """Return the payload with values in place of references."""
        chosen = _chosen(payload.artifacts, MAX_ANSWER_BYTES)
        return payload.model_copy(update={"artifacts": await self._with_values(tenant, payload.artifacts, chosen)})

    async def record(self, tenant: str, record: bytes, resources: ExitStack) -> bytes:
        """Return a run's terminal record with values in place of references; any other record unchanged.

        The bytes of the values count as held until `resources` is closed. When none are free, references stay.
        """
        try:
            content = exact_json.loads(record)
            end = content["events"][-1]
            payload = end if end["type"] == "done" else end["payload"]
            chosen = _chosen(payload["artifacts"], min(MAX_EVENT_BYTES, self.free_bytes))
            size = sum(ref.size for ref in chosen.values())
            self.free_bytes -= size

            def release() -> None:
                self.free_bytes += size

            resources.callback(release)
            payload["artifacts"] = await self._with_values(tenant, payload["artifacts"], chosen)
            return exact_json.dumps(content)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            return record

    async def _with_values(
        self, tenant: str, artifacts: Mapping[str, Mapping[str, Any]], chosen: _References
    ) -> dict[str, dict[str, Any]]:
        slots = asyncio.Semaphore(MAX_PARALLEL_READS)
        is_unavailable = False

        async def read(ref: ArtifactRef) -> Any:
            nonlocal is_unavailable
            async with slots:
                try:
                    if is_unavailable:
                        raise StorageUnavailable("it was unavailable for another artifact")
                    stored, body = await self._artifacts.read(tenant, ref.artifact_id, limit=MAX_HTTP_INLINE_BYTES)
                    value = from_blob(body, stored)
                    exact_json.dumps(value)
                except (ArtifactFailed, ValueError, TypeError, RecursionError) as error:
                    is_unavailable = is_unavailable or isinstance(error, StorageUnavailable)
                    logger.info("artifact_left_as_reference", artifact_id=ref.artifact_id, error=type(error).__name__)
                    return ref.model_dump(mode="json", exclude_none=True)
                return value

        values = await asyncio.gather(*(read(ref) for ref in chosen.values()))
        found = {tool: dict(fields) for tool, fields in artifacts.items()}
        for (tool, path), value in zip(chosen, values, strict=True):
            found[tool][path] = value
        return found


def _chosen(artifacts: Mapping[str, Mapping[str, Any]], max_bytes: int) -> _References:
    """Choose the references whose values fit into `max_bytes` together."""
    chosen: _References = {}
    for tool, fields in artifacts.items():
        for path, value in fields.items():
            ref = as_reference(value)
            if ref is None or ref.json_type in {None, "bytes"} or ref.size > min(MAX_HTTP_INLINE_BYTES, max_bytes):
                continue
            chosen[tool, path] = ref
            max_bytes -= ref.size
    return chosen
