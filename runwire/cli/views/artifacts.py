"""The artifacts of a run: small ones are values in its payload, the others are in the artifact store."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from contracts.artifacts.references import ArtifactRef
from runwire.client import Client


@dataclass(frozen=True)
class RunArtifact:
    """One artifact: with `artifact_id` the store holds it, else it is `data`. `size` is in bytes."""

    name: str
    mime_type: str
    size: int
    artifact_type: str | None = None
    artifact_id: str | None = None
    own_id: str | None = None
    """The id that its tool gave it, any text."""
    skill_id: str | None = None
    skill_name: str | None = None
    is_file: bool = False
    """Whether `name` is the name of a file."""
    data: bytes = b""
    """What the payload holds: a text as it is, anything else as JSON."""

    @property
    def kind(self) -> str:
        """The media type, and how to show it."""
        return f"{self.mime_type} ({self.artifact_type})" if self.artifact_type else self.mime_type

    def described(self) -> dict[str, Any]:
        """What the command line prints as JSON."""
        names = ("name", "mime_type", "artifact_type", "size", "artifact_id", "own_id", "skill_id", "skill_name")
        return {name: getattr(self, name) for name in names}


async def artifacts_of(client: Client, run_id: str) -> list[RunArtifact]:
    """Return what the payload names, then what else the store holds of the run. Raises RunwireError."""
    status = await client.status(run_id, artifacts="refs")
    fields = status.payload.artifacts if status.payload else {}
    values = [(f"{tool}.{field}", value) for tool, own in fields.items() for field, value in own.items()]
    found = [_of_payload(name, value) for name, value in values]
    named = {each.artifact_id for each in found}
    return found + [each async for each in stored_artifacts(client, run_id) if each.artifact_id not in named]


async def stored_artifacts(
    client: Client, run_id: str | None, session_id: str | None = None, **wanted: str | None
) -> AsyncIterator[RunArtifact]:
    """Yield what the store holds of a run or a session. `wanted`: as for `Client.artifacts`. Raises RunwireError."""
    async for ref in client.artifacts(run_id, session_id=session_id, **wanted):
        yield _stored(ref.namespace or "artifact", ref)


def _of_payload(name: str, value: Any) -> RunArtifact:
    try:
        return _stored(name, ArtifactRef.model_validate(value))
    except ValidationError:
        kind = "text/plain" if isinstance(value, str) else "application/json"
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2) + "\n"
        data = text.encode(errors="replace")
        return RunArtifact(name, kind, len(data), data=data)


def _stored(name: str, ref: ArtifactRef) -> RunArtifact:
    fields = ref.model_dump(
        include={"mime_type", "size", "artifact_type", "artifact_id", "own_id", "skill_id", "skill_name"}
    )
    return RunArtifact(ref.filename or name, **fields, is_file=ref.filename is not None)
