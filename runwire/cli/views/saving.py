"""Save a run in a folder: its answer, its payload as JSON, and each artifact as a file.

Rule 1: names come from models, tools and users, so a file never gets a name that leaves the folder, hides, or means
something to a shell or an operating system.
Rule 2: no file is overwritten: a name that is taken gets a number.
"""

import contextlib
import mimetypes
import re
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path

from runwire.cli.views.artifacts import RunArtifact, artifacts_of
from runwire.client import Client

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
