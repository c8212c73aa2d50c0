"""How a run becomes files: their names come from others, and no file is lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runwire.cli.report import RunArtifact, _write, file_name


def artifact(name: str, mime_type: str = "application/json", *, is_file: bool = False) -> RunArtifact:
    return RunArtifact(name, mime_type, 1, is_file=is_file)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (artifact("draw.chart"), "draw.chart.json"),
        (artifact("draw.page", "text/html"), "draw.page.html"),
        (artifact("draw.data", "application/x-unheard-of"), "draw.data"),
        (artifact("may.png", "image/png", is_file=True), "may.png"),
        (artifact("May Über.png", "image/png", is_file=True), "May Über.png"),
        (artifact("may", "image/png", is_file=True), "may.png"),
        (artifact("../../etc/passwd", "text/plain", is_file=True), "passwd.txt"),
        (artifact("..\\..\\boot.ini", is_file=True), "boot.ini"),
        (artifact("draw.../../x"), "draw..._.._x.json"),
        (artifact("..", is_file=True), "artifact.json"),
        (artifact(".bashrc", "text/plain", is_file=True), "bashrc.txt"),
        (artifact("a\nb;c\x1b[0m.txt", is_file=True), "a_b_c__0m.txt"),
        (artifact("CON.txt", is_file=True), "_CON.txt"),
        (artifact("é" * 200 + ".png", is_file=True), "é" * 60 + ".png"),
    ],
)
def test_names_are_safe(given: RunArtifact, name: str) -> None:
    """They stay in the folder, are visible, and have a suffix."""
    assert file_name(given) == name


async def pieces(*data: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    """Bytes as they arrive; then the error."""
    for each in data:
        yield each
    if error is not None:
        raise error


async def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    """Also where a link has it that leads to nothing."""
    outside = tmp_path / "outside"
    (tmp_path / "chart-2.json").symlink_to(outside)
    names = [await _write(tmp_path, "chart.json", pieces(b"1", b"2")) for _ in range(2)]
    assert names == ["chart.json", "chart-3.json"]
    assert (tmp_path / "chart-3.json").read_bytes() == b"12"
    assert not outside.exists()
