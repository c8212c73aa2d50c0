"""Read a CSV file: its encoding, its delimiter, its records with the lines on which they begin.

Rule 1: the whole file decides about the encoding. Bytes that may be of two encodings are refused with the option that
settles it, and never guessed.
Rule 2: a line is a physical line, the first is 1. A record whose quotes are malformed is refused, a quote that is not
closed refuses the file: what follows it would be read as something else.
"""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from services.tables.errors import Refused
from services.tables.values import BLANKS

DELIMITERS = (",", ";", "\t", "|")
_ENCODINGS = {"utf-8", "utf-16", "windows-1252", "gb18030", "iso-8859-1", "shift_jis"}
_MARKS = {b"\xef\xbb\xbf": ("utf-8", "utf-8-sig"), b"\xff\xfe": ("utf-16", "utf-16"), b"\xfe\xff": ("utf-16", "utf-16")}
_HINT = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)
_HIGH = re.compile(rb"[\x80-\xff]+")
_JUDGED_RECORDS = 10_000
_NO_OTHER = 0.2
"""A delimiter that stands in the header is another one's only where fewer records than this fit it."""


@dataclass(frozen=True)
class Record:
    """A line of cells; None where its quotes are malformed."""

    line: int
    cells: list[str] | None


@dataclass(frozen=True)
class CsvFile:
    """A file that was decoded. `records` reads it once more each time."""

    text: str
    encoding: str
    delimiter: str
    first_line: int = 1

    def records(self) -> Iterator[Record]:
        """Return the records, without blank lines. Raises Refused for a quote that is not closed."""
        lines = io.StringIO(self.text, newline="")
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        while True:
            line = self.first_line + reader.line_num
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


def opened(data: bytes, encoding: str | None, delimiter: str | None) -> CsvFile:
    """Decode a file and find its delimiter. Raises Refused."""
    text, found = _decoded(data, encoding)
    hint = _HINT.match(text)
    if hint:
        text = text[hint.end() :]
    first_line = 2 if hint else 1
    delimiter = delimiter or (hint and hint[1])
    if delimiter is None:
        rated = [(_consistency(CsvFile(text, found, each)), -at, each) for at, each in enumerate(DELIMITERS)]
        delimiter = max(rated)[2]
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise Refused("csv_invalid", "a delimiter is one character, such as ; or ,", "delimiter")
    return CsvFile(text, found, delimiter, first_line)


def _decoded(data: bytes, encoding: str | None) -> tuple[str, str]:
    if not data.strip():
        raise Refused("csv_invalid", "the file is empty")
    mark = next((each for each in _MARKS if data.startswith(each)), None)
    name, codec = _MARKS[mark] if mark else (encoding or "utf-8", encoding or "utf-8")
    if name.lower() not in _ENCODINGS:
        raise Refused("csv_invalid", f"the encoding is one of: {', '.join(sorted(_ENCODINGS))}", "encoding")
    try:
        return data.decode(codec), name
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        # Pairs of high bytes are Chinese or Japanese as likely as accents.
        if (
            mark is None
            and encoding is None
            and data[: error.start].isascii()
            and any(len(each) % 2 for each in _HIGH.findall(data))
        ):
            try:
                return data.decode("windows-1252"), "windows-1252"
            except UnicodeDecodeError:
                pass
    reason = f"line {line} is not {name}; name its encoding in the option encoding: {', '.join(sorted(_ENCODINGS))}"
    raise Refused("csv_invalid", reason, "encoding")


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
