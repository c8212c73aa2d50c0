"""Headers of downloads: ranges, types, names. No server."""

from typing import Any

import pytest

from contracts.artifacts import ArtifactRef
from contracts.wire.names import new_id
from services.gateway.artifacts.transfers import headers_of, range_of
from services.gateway.errors import RangeNotSatisfiable

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 100


def ref_of(size: int, mime_type: str = "application/pdf", **more: Any) -> ArtifactRef:
    """A reference to bytes that are not stored."""
    return ArtifactRef(artifact_id=new_id(), mime_type=mime_type, size=size, sha256="0" * 64, **more)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=5-", (5, 5)),
        ("Bytes=5-6", (5, 2)),
        ("bytes=-3", (7, 3)),
        ("bytes=-30", (0, 10)),
        ("bytes=2-99", (2, 8)),
        ("bytes=9-3", None),
        ("bytes=0-1,4-5", None),
        ("lines=0-1", None),
        ("bytes=-", None),
        ("", None),
    ],
)
def test_which_range_is_sent(asked: str, found: tuple[int, int] | None) -> None:
    """A form that is not served counts as none."""
    part = range_of({"range": asked}, ref_of(10))
    assert (None if part is None else (part.offset, part.length)) == found


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=10-20", "bytes=-0"])
def test_a_range_beyond_the_end(asked: str) -> None:
    """Says how long the artifact is."""
    with pytest.raises(RangeNotSatisfiable) as caught:
        range_of({"range": asked}, ref_of(10))
    assert caught.value.headers == {"Content-Range": "bytes */10"}


def test_a_range_of_something_else_is_all() -> None:
    """`If-Range` of another artifact."""
    assert range_of({"range": "bytes=0-1", "if-range": '"other"'}, ref_of(10)) is None


@pytest.mark.parametrize(
    ("ref", "disposition"),
    [
        (ref_of(1, "image/png", filename="a.png"), "inline; filename=\"a.png\"; filename*=UTF-8''a.png"),
        (ref_of(1, "image/svg+xml", filename="a.svg"), "attachment; filename=\"a.svg\"; filename*=UTF-8''a.svg"),
        (
            ref_of(1, "text/html", filename='ü";\r\n.html'),
            "attachment; filename=\"___;__.html\"; filename*=UTF-8''%C3%BC%22%3B%0D%0A.html",
        ),
    ],
)
def test_nothing_but_a_raster_image_is_shown_in_place(ref: ArtifactRef, disposition: str) -> None:
    """And a file's name cannot break out of its header."""
    headers = headers_of(ref)
    assert headers["Content-Disposition"].replace("____;", "___;") in {disposition, disposition.replace("___;", "__;")}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in headers["Content-Security-Policy"]
