"""Record `runwire up --demo --kill` as an SVG: `python -m benchmarks.recording docs/recording.svg`.

It runs in a terminal of its own, and each piece of its output appears in the picture when it was written. Pauses are
cut to one second, and the data folder is written as `.runwire`; nothing else is changed.
"""

import os
import pty
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.color_triplet import ColorTriplet
from rich.style import Style
from rich.terminal_theme import MONOKAI

COMMAND = ["runwire", "up", "--port", "0", "--demo", "--kill", "--once"]
_SHOWN = "$ runwire up --demo --kill"
_COLUMNS = 104
_MAX_PAUSE_S, _LAST_S = 1.0, 6.0
_WIDTH, _HEIGHT, _MARGIN = 7.8, 17, 14
"""Pixels of a character, of a line, around all."""
_Written = list[tuple[float, str]]
"""Seconds since the start, and what was written then."""


@dataclass(frozen=True)
class _Piece:
    at: float
    row: int
    column: int
    text: str
    style: Style


def recorded(folder: Path) -> _Written:
    """Run the command in a terminal, with its data in a folder."""
    mine, its = pty.openpty()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {"RUNWIRE_DATA_DIR": str(folder), "RUNWIRE_MODEL": "builtin/rehearsal", "TERM": "xterm-256color"}
    env |= {"PATH": path, "HOME": str(folder), "COLUMNS": str(_COLUMNS)}
    written, began_at = [(0.0, f"\x1b[1m{_SHOWN}\x1b[0m\n")], time.monotonic()
    with subprocess.Popen(COMMAND, env=env, stdin=subprocess.DEVNULL, stdout=its, stderr=its, cwd=folder) as process:
        os.close(its)
        while True:
            try:
                text = os.read(mine, 1 << 16).decode()
            except OSError:  # It has ended.
                break
            text = text.replace("\r\n", "\n").replace(str(folder), ".runwire")
            written.append((time.monotonic() - began_at, text))
    os.close(mine)
    if process.returncode:
        sys.exit(f"the run has failed: {''.join(text for _, text in written)}")
    return written


def _pieces(written: _Written) -> list[_Piece]:
    """Each text in one style, with its place on the screen."""
    decoder, found = AnsiDecoder(), list[_Piece]()
    at = before = 0.0
    row = column = 0
    for written_at, text in written:
        at += min(written_at - before, _MAX_PAUSE_S)
        before = written_at
        for number, line in enumerate(text.split("\n")):
            row, column = (row + 1, 0) if number else (row, column)
            decoded = decoder.decode_line(line)
            for part in decoded.divide(sorted({edge for span in decoded.spans for edge in (span.start, span.end)})):
                rest = part.plain
                while rest:
                    row, column = (row + 1, 0) if column == _COLUMNS else (row, column)
                    fitting, rest = rest[: _COLUMNS - column], rest[_COLUMNS - column :]
                    style = part.spans[0].style if part.spans else Style()
                    found.append(_Piece(at, row, column, fitting, style if isinstance(style, Style) else Style()))
                    column += len(fitting)
    return found


def drawn(written: _Written) -> str:
    """Return the SVG: it plays, stands still for some seconds, and begins again."""
    pieces = _pieces(written)
    width, height = _COLUMNS * _WIDTH + 2 * _MARGIN, (pieces[-1].row + 1) * _HEIGHT + 2 * _MARGIN
    ground = MONOKAI.background_color.hex
    font, length_s = "ui-monospace, Menlo, Consolas, monospace", pieces[-1].at + _LAST_S
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}">',
        f"<title>{_SHOWN}</title>",
        f'<rect width="100%" height="100%" rx="6" fill="{ground}">',
        f'<animate id="play" attributeName="x" values="0" dur="{length_s:.1f}s" begin="0s;play.end"/></rect>',
        f'<g font-size="13" font-family="{font}">',
    ]
    for piece in pieces:
        color = piece.style.color.get_truecolor(MONOKAI) if piece.style.color else MONOKAI.foreground_color
        look = f'fill="{_dimmed(color).hex if piece.style.dim else color.hex}"'
        look += ' font-weight="bold"' if piece.style.bold else ""
        look += ' font-style="italic"' if piece.style.italic else ""
        x, y = _MARGIN + piece.column * _WIDTH, _MARGIN + (piece.row + 0.75) * _HEIGHT
        lines.append(
            f'<text x="{x:.1f}" y="{y:.1f}" textLength="{len(piece.text) * _WIDTH:.1f}" xml:space="preserve" {look}>'
            f'{escape(piece.text)}<set attributeName="visibility" to="hidden" begin="play.begin" '
            f'dur="{max(piece.at, 0.01):.2f}s"/></text>'
        )
    return "\n".join([*lines, "</g></svg>", ""])


def _dimmed(color: ColorTriplet) -> ColorTriplet:
    return ColorTriplet(*(round(0.55 * one + 0.45 * other) for one, other in zip(color, (12, 12, 12), strict=True)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        Path(sys.argv[1]).write_text(drawn(recorded(Path(made))), encoding="utf-8")
