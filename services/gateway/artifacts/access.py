"""Which artifacts a caller may see: all of its tenant, or those of the user that its key is pinned to.

An artifact belongs to the user whose key uploaded it, else to the user of its run, else to that of its session.
"""

import asyncio
from collections.abc import Iterable

from contracts.artifacts.references import SAID, StoredArtifact
from services.gateway.auth.caller import Caller
from services.gateway.runs.reader import RunReader
from services.gateway.sessions.reader import SessionReader
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactNotFound


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
