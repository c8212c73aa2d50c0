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
    """One artifact: with `artifact_id` the store holds it, else it is `value`. `size` is in bytes."""

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
    value: Any = None

    @property
    def kind(self) -> str:
        """The media type, and how to show it."""
        return f"{self.mime_type} ({self.artifact_type})" if self.artifact_type else self.mime_type

    def described(self) -> dict[str, Any]:
        """What the command line prints as JSON."""
        return {
            "name": self.name,
            "mime_type": self.mime_type,
            "artifact_type": self.artifact_type,
            "size": self.size,
            "artifact_id": self.artifact_id,
            "own_id": self.own_id,
            "skill_id": self.skill_id,
            "skill_name": self.skill_name,
        }

    def data(self) -> bytes:
        """The value as bytes: a text as it is, anything else as JSON."""
        return _bytes(self.value)


async def artifacts_of(client: Client, run_id: str) -> list[RunArtifact]:
    """Return what the payload names, then what else the store holds of the run. Raises RunwireError."""
    status = await client.status(run_id, artifacts="refs")
    fields = status.payload.artifacts if status.payload else {}
    found = [
        _of_payload(f"{tool}.{field}", value) for tool, values in fields.items() for field, value in values.items()
    ]
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
        return RunArtifact(name, kind, len(_bytes(value)), value=value)


def _stored(name: str, ref: ArtifactRef) -> RunArtifact:
    return RunArtifact(
        ref.filename or name,
        ref.mime_type,
        ref.size,
        ref.artifact_type,
        ref.artifact_id,
        ref.own_id,
        ref.skill_id,
        ref.skill_name,
        is_file=ref.filename is not None,
    )


def _bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    return text.encode(errors="replace")
