"""The artifacts of a run: small ones are values in its payload, the others are in the artifact store.

A run is saved in a folder: its answer, its payload as JSON, and each artifact as a file.

Rule 1: names come from models, tools and users, so a file never gets a name that leaves the folder, hides, or means
something to a shell or an operating system.
Rule 2: no file is overwritten: a name that is taken gets a number.
"""

import contextlib
import json
import mimetypes
import re
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
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


_MAX_NAME_BYTES, _MAX_SUFFIX_CHARACTERS = 120, 16
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Devices of Windows."""


async def save(client: Client, run_id: str, folder: Path) -> list[str]:
    """Save a run that has ended in a folder that exists, and return the names of the files.

    Raises RunwireError, OSError.
    """
    payload = (await client.status(run_id)).payload
    texts = {
        "answer.md": payload.raw_answer + "\n" if payload else "",
        "payload.json": payload.model_dump_json(indent=2) + "\n" if payload else "null\n",
    }
    names = [await _write(folder, name, once(text.encode(errors="replace"))) for name, text in texts.items()]
    for artifact in await artifacts_of(client, run_id):
        stored = client.fetch(artifact.artifact_id) if artifact.artifact_id else once(artifact.data)
        names.append(await _write(folder, file_name(artifact), stored))
    return names


def file_name(artifact: RunArtifact) -> str:
    """The name of an artifact's file: safe on every system, with the suffix of its type."""
    plain = artifact.name.replace("\\", "/").rpartition("/")[2] if artifact.is_file else artifact.name
    letters = re.sub(r"[^\w. -]", "_", unicodedata.normalize("NFC", plain)).strip(" .") or "artifact"
    suffix = Path(letters).suffix if artifact.is_file else ""
    stem = letters.removesuffix(suffix).encode()[:_MAX_NAME_BYTES].decode(errors="ignore").rstrip(" .")
    if not 0 < len(suffix) <= _MAX_SUFFIX_CHARACTERS:
        suffix = mimetypes.guess_extension(artifact.mime_type) or ""
    return f"_{stem}{suffix}" if _RESERVED.match(stem) or not stem else f"{stem}{suffix}"


async def once(data: bytes) -> AsyncIterator[bytes]:
    """One piece of bytes."""
    yield data


async def _write(folder: Path, name: str, pieces: AsyncIterator[bytes]) -> str:
    """Write a file under a name that is free, and return the name. A file that cannot be completed is removed."""
    path, number = folder / name, 1
    while True:
        try:
            target = path.open("xb")
            break
        except FileExistsError:
            number += 1
            path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    with contextlib.ExitStack() as incomplete:
        incomplete.callback(path.unlink, missing_ok=True)
        with target:
            async for piece in pieces:
                target.write(piece)
        incomplete.pop_all()
    return path.name
