"""Read a CSV file: encoding, delimiter, records with the lines on which they begin, texts that an export escaped.

Rule 1: a file is read some of it at a time, as often as it is needed, and its whole decides about the encoding. Bytes
that may be of two encodings are refused with the option that settles it, and never guessed.
Rule 2: a line is a physical line, the first is 1. A record whose quotes are malformed is refused, a quote that is not
closed refuses the file: what follows it would be read as something else.
Rule 3: a text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return is a formula in a spreadsheet. An export
puts an apostrophe before it, and an import takes that away again. Numbers are no formulas, and stay.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from services.tables.errors import Refused
from services.tables.values import BLANKS

DELIMITERS = (",", ";", "\t", "|")
_ENCODINGS = {"utf-8", "utf-16", "windows-1252", "gb18030", "iso-8859-1", "shift_jis"}
_MARKS = {b"\xef\xbb\xbf": ("utf-8", "utf-8-sig"), b"\xff\xfe": ("utf-16", "utf-16"), b"\xfe\xff": ("utf-16", "utf-16")}
_HINT = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)
_MAX_HINT_CHARACTERS = 8
_HIGH = re.compile(rb"[\x80-\xff]+")
_JUDGED_RECORDS = 2_000
_READ_BYTES = 1 << 20
_NO_OTHER = 0.2
"""A delimiter that stands in the header is another one's only where fewer records than this fit it."""


@dataclass(frozen=True)
class Record:
    """A line of cells; None where its quotes are malformed."""

    line: int
    cells: list[str] | None


@dataclass(frozen=True)
class CsvFile:
    """A file whose encoding is known. `records` reads it from its beginning: one reader at a time."""

    file: BinaryIO
    encoding: str
    codec: str
    delimiter: str
    has_hint: bool = False

    def records(self) -> Iterator[Record]:
        """Return the records, without blank lines. Raises Refused for a quote that is not closed."""
        lines = text_of(self.file, self.codec)
        try:
            if self.has_hint:
                lines.readline()
            yield from self._records(lines)
        finally:
            lines.detach()  # Else the file is closed with it.

    def _records(self, lines: io.TextIOWrapper) -> Iterator[Record]:
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        while True:
            line = 1 + self.has_hint + reader.line_num
            try:
                cells = next(reader, None)
            except csv.Error as error:
                if "delimiter expected" not in str(error) and "expected after" not in str(error):
                    reason = "has a quote that is not closed, or a cell of more than 131,072 characters"
                    raise Refused("csv_invalid", f"the record that begins on line {line} {reason}") from None
                yield Record(line, None)
                continue
            if cells is None:
                return
            if len(cells) > 1 or (cells and (not cells[0] or cells[0].strip(BLANKS))):
                yield Record(line, cells)


def text_of(file: BinaryIO, codec: str) -> io.TextIOWrapper:
    """Return a reader of the text from its beginning, with its line ends."""
    file.seek(0)
    return io.TextIOWrapper(file, codec, newline="")


def opened(file: BinaryIO, encoding: str | None, delimiter: str | None) -> CsvFile:
    """Find out how a file is encoded, and its delimiter. Raises Refused."""
    found, codec = _encoding(file, encoding)
    text = text_of(file, codec)
    hint = _HINT.match(text.readline(_MAX_HINT_CHARACTERS))
    text.detach()
    delimiter = delimiter or (hint and hint[1])
    if delimiter is None:
        rated = [(_consistency(CsvFile(file, found, codec, each)), -at, each) for at, each in enumerate(DELIMITERS)]
        delimiter = max(rated)[2]
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise Refused("csv_invalid", "a delimiter is one character, such as ; or ,", "delimiter")
    return CsvFile(file, found, codec, delimiter, hint is not None)


def _encoding(file: BinaryIO, encoding: str | None) -> tuple[str, str]:
    file.seek(0)
    beginning = file.read(_READ_BYTES)
    if not beginning.strip():
        raise Refused("csv_invalid", "the file is empty")
    mark = next((each for each in _MARKS if beginning.startswith(each)), None)
    name, codec = _MARKS[mark] if mark else (encoding or "utf-8", encoding or "utf-8")
    if name.lower() not in _ENCODINGS:
        raise Refused("csv_invalid", f"the encoding is one of: {', '.join(sorted(_ENCODINGS))}", "encoding")
    wrong = _wrong(file, codec)
    if wrong is None:
        return name, codec
    line, is_first = wrong
    # Pairs of high bytes are Chinese or Japanese as likely as accents.
    if mark is None and encoding is None and is_first and _has_single_bytes(file) and not _wrong(file, "windows-1252"):
        return "windows-1252", "windows-1252"
    reason = f"line {line} is not {name}; name its encoding in the option encoding: {', '.join(sorted(_ENCODINGS))}"
    raise Refused("csv_invalid", reason, "encoding")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    while piece := file.read(_READ_BYTES):
        yield piece
    yield b""


def _wrong(file: BinaryIO, codec: str) -> tuple[int, bool] | None:
    """Return the line that is not in this encoding, and whether only ASCII stands before; None: all of it is."""
    decoder, line, is_ascii = codecs.getincrementaldecoder(codec)(), 1, True
    for piece in _pieces(file):
        try:
            decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            before = error.object[: error.start]
            return line + before.count(b"\n"), is_ascii and before.isascii()
        line += piece.count(b"\n")
        is_ascii = is_ascii and piece.isascii()
    return None


def _has_single_bytes(file: BinaryIO) -> bool:
    """Whether somewhere an odd number of bytes beyond ASCII stands together."""
    odd = 0
    for piece in _pieces(file):
        text = b"\x80" * odd + piece  # A run that a piece cuts is as odd as its part before.
        runs = [(found.end(), found.end() - found.start()) for found in _HIGH.finditer(text)]
        odd = runs.pop()[1] % 2 if piece and runs and runs[-1][0] == len(text) else 0
        if any(size % 2 for _, size in runs):
            return True
    return False


def _consistency(file: CsvFile) -> float:
    """Return how many records have as many cells as the header, from 0 to 1."""
    width = same = count = 0
    try:
        for record in file.records():
            cells = len(record.cells or ())
            if not width:
                width = cells
                continue
            count += 1
            same += cells == width
            if count == _JUDGED_RECORDS:
                break
    except Refused:
        pass  # What was read until there says enough.
    return (same / count if count else 1.0) * (1 if width > 1 else _NO_OTHER)


FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER_LIKE = re.compile(r"[+-][0-9][0-9.,]*")


def escaped(text: str) -> str:
    """Return a text as an export writes it."""
    return f"'{text}" if FORMULA.match(text) and not _NUMBER_LIKE.fullmatch(text) else text


def unescaped(text: str) -> str:
    """Return the text that an export has written so."""
    return text[1:] if text.startswith("'") and FORMULA.match(text) else text
