"""Detect the media type of bytes from their beginning, and check a declared type. Pure.

Rule 1: a type with a signature (an image, a PDF, an archive) is accepted only if the bytes have that signature.
Rule 2: bytes with a signature are not accepted as another type, least of all as text or JSON.
Rule 3: any other type is accepted as declared. Readers never let a browser guess it (`nosniff`) or execute it.

The table is our own: the signatures that matter to models and browsers fit on ten lines, and a library for hundreds of
formats would have to be trusted with all bytes from strangers.
"""

import codecs
import json
import re
import unicodedata
from typing import get_args

from contracts.artifacts.images import ImageType, image_type
from services.shared.artifacts.errors import ArtifactInvalid

HEAD_BYTES = 4096
"""Bytes at the beginning that are inspected."""
OCTETS = "application/octet-stream"
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_MIME_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}", re.ASCII)
_PARAMETERS = re.compile(r"(; ?[a-z0-9_-]+=([A-Za-z0-9_.+-]+|\"[ !#-\[\]-~]*\"))*", re.ASCII)
_JSON_START = re.compile(rb"[\s]*(?:[\[{\"0-9-]|true|false|null)")
_FILENAME_CHARACTERS = 255

_SIGNATURES: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"%PDF-"), "application/pdf"),
    (re.compile(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"), "application/zip"),
    (re.compile(rb"\x1f\x8b\x08"), "application/gzip"),
)
_SIGNED = {*get_args(ImageType), *(kind for _, kind in _SIGNATURES)}
_ALIASES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "application/x-gzip": "application/gzip",
    "text/json": _JSON,
}
_CONTAINERS = {"application/zip": ("application/",), "application/gzip": ("application/",)}
"""Type prefixes that are allowed for a shared signature: documents, packages and notebooks are zip files."""


def signature(head: bytes) -> str | None:
    """Return the type whose signature the bytes begin with, or None."""
    return image_type(head) or next((kind for pattern, kind in _SIGNATURES if pattern.match(head)), None)


def sniffed(head: bytes, *, whole: bool) -> str:
    """Return the type of bytes without a declared type.

    `whole`: `head` is all of them, so JSON can be distinguished from text.
    """
    found = signature(head)
    if found is not None:
        return found
    try:
        # A character that is cut off at the end of `head` counts as complete.
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return OCTETS
    if any(ord(character) < ord(" ") and character not in "\t\n\r\f" for character in text):
        return OCTETS
    if whole and head.lstrip()[:1] in {b"{", b"["}:
        try:
            json.loads(head)
        except (ValueError, RecursionError):
            return _TEXT
        return _JSON
    return _TEXT


def checked_mime_type(declared: str | None, head: bytes, *, whole: bool) -> str:
    """Return the type to store. Raises ArtifactInvalid when the bytes contradict the declared type."""
    name, _, parameters = (declared or OCTETS).strip().partition(";")
    name, parameters = name.strip().lower(), f"; {parameters.strip()}" if parameters.strip() else ""
    if not _MIME_TYPE.fullmatch(name) or not _PARAMETERS.fullmatch(parameters):
        raise ArtifactInvalid("the media type is not well-formed")
    name = _ALIASES.get(name, name)
    if name == OCTETS:
        return sniffed(head, whole=whole)
    found = signature(head)
    if name in _SIGNED and name != found:
        raise ArtifactInvalid(f"the bytes are not {name}")
    if found is not None and name != found and not name.startswith(_CONTAINERS.get(found, ())):
        raise ArtifactInvalid(f"the bytes are {found}, not {name}")
    if name == _JSON and (found is not None or (head and not _JSON_START.match(head))):
        raise ArtifactInvalid(f"the bytes are not {name}")
    return name + parameters


def clean_filename(given: str | None) -> str | None:
    """Return a file name of at most 255 characters, without folders and invisible characters; None if that is empty."""
    if not given:
        return None
    last = re.split(r"[/\\]", given)[-1]
    # Categories C*: control and format characters (a right-to-left mark turns `gpj.exe` around), surrogates,
    # unassigned.
    shown = "".join(character for character in last if not unicodedata.category(character).startswith("C")).strip(" .")
    return shown[:_FILENAME_CHARACTERS] or None
