"""Types are found in the bytes, and checked against what is said of them. No server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.artifact_store.store import HEAD_BYTES, checked_mime_type, clean_filename, signature, sniffed
from services.shared.artifacts.errors import ArtifactInvalid

HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF",
    "image/gif": b"GIF89a\x01\x00",
    "image/webp": b"RIFF\x1a\x00\x00\x00WEBPVP8 ",
    "application/pdf": b"%PDF-1.7\n%\xe2\xe3",
    "application/zip": b"PK\x03\x04\x14\x00",
    "application/gzip": b"\x1f\x8b\x08\x00\x00",
}
OCTETS = "application/octet-stream"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


@pytest.mark.parametrize("kind", HEADS)
def test_a_signature_is_found_and_believed(kind: str) -> None:
    """Whether its type was named or not, in either case, in full or only by its beginning."""
    head = HEADS[kind]
    assert signature(head) == kind
    for declared in (None, "", OCTETS, kind, kind.upper(), f" {kind} "):
        for whole in (True, False):
            assert checked_mime_type(declared, head, whole=whole) == kind


@pytest.mark.parametrize("kind", HEADS)
def test_a_signature_is_needed_by_those_who_claim_its_type(kind: str) -> None:
    """Other bytes, other signatures and no bytes at all do not pass."""
    for head in (b"", b"hello", b"<svg onload=alert(1)>", *(other for name, other in HEADS.items() if name != kind)):
        with pytest.raises(ArtifactInvalid):
            checked_mime_type(kind, head, whole=True)


@pytest.mark.parametrize(
    ("declared", "head", "kept"),
    [
        (DOCX, HEADS["application/zip"], DOCX),
        ("application/x-tar", HEADS["application/gzip"], "application/x-tar"),
        ("image/jpg", HEADS["image/jpeg"], "image/jpeg"),
        ("text/csv; charset=utf-8", b"a,b\n", "text/csv; charset=utf-8"),
        ("Text/HTML;charset=UTF-8", b"<p>", "text/html; charset=UTF-8"),
        ("application/json", b' {"a": 1}', "application/json"),
        ("application/json", b"-1.5", "application/json"),
        ("application/json", b"", "application/json"),
        ("audio/x-something", b"\x00\x01", "audio/x-something"),
        ("image/svg+xml", b"<svg/>", "image/svg+xml"),
    ],
)
def test_what_does_not_contradict_the_bytes_is_kept(declared: str, head: bytes, kept: str) -> None:
    """Formats inside containers, aliases, parameters, and whatever has no signature here."""
    assert checked_mime_type(declared, head, whole=False) == kept


@given(st.binary(max_size=HEAD_BYTES), st.booleans())
def test_any_bytes_have_a_type(head: bytes, whole: bool) -> None:  # noqa: FBT001, hypothesis names no arguments
    """And it is one that they may be declared as afterwards."""
    kind = sniffed(head, whole=whole)
    assert checked_mime_type(kind, head, whole=whole) == kind


@pytest.mark.parametrize(
    ("given_name", "kept"),
    [
        ("report.pdf", "report.pdf"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("..", None),
        ("a\r\nX-Evil: 1", "aX-Evil: 1"),
        ("gpj\u202eexe.", "gpjexe"),
        ("Übersicht 2026.xlsx", "Übersicht 2026.xlsx"),
        ("", None),
        (None, None),
        ("x" * 900, "x" * 255),
        ("\ud800", None),
    ],
)
def test_filenames_hold_nothing_but_a_name(given_name: str | None, kept: str | None) -> None:
    """They are shown to people and saved under; no key is made of them."""
    assert clean_filename(given_name) == kept
