r"""The JSON loader for text that a model or a tool wrote.

Rules, in both dialects:
- Numbers are finite and of limited length; `NaN` and `Infinity` are refused.
- A repeated `next_node`, `args`, `plan` or answer key in one object is refused. Of any other repeated key the last
  value counts.
- Nesting is limited, and there is no recursion, so no reply can exhaust the stack.
- Each character is read once. Halves of a surrogate pair are joined; a lone half becomes U+FFFD.
- `\f` and `\b` before a letter are a backslash and a letter: `\frac` and `\begin` of LaTeX, not a form feed.

The lenient dialect also accepts what weak models write: Python's quotes (also triple) and constants, comments, trailing
commas, raw control characters in strings, and invalid escapes, which are kept as written (`\alpha`, `D:\x64`). Codes
such as `\x41` are decoded only where the first string has Python's single quotes, since `repr` writes them.
"""

import math
import re
from typing import Any

import jiter

from services.shared.redaction.json_values import well_formed

MAX_DEPTH = 99
"""Nested containers. A real action needs less than a tenth of it."""
MAX_DIGITS = 1000
"""Characters of a number: Python's conversion of digits is quadratic."""
ANSWER_KEYS = ("answer", "raw_answer", "text", "response", "content")
"""Fields that hold a final answer. The first of the first two in the text counts, then the others in this order."""
ONCE_KEYS = frozenset({"next_node", "args", "plan", *ANSWER_KEYS})
"""Keys that may occur once per object. With two, it is unknown which one was meant, or already streamed."""

BLANKS = re.compile(r"[ \t\r\n]*+")
_LINE = re.compile(r"[^\n]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?>(\.[0-9]++)?)(?>([eE][-+]?[0-9]++)?)")
_WORD = re.compile(r"[-+]?\w++")
_PLAIN = {
    ('"', False): re.compile(r'[^"\\\x00-\x1f]*+'),
    ('"', True): re.compile(r'[^"\\]*+'),
    ("'", True): re.compile(r"[^'\\]*+"),
}
_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_WORDS = {"True": True, "False": False, "None": None}
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PYTHON_ESCAPES = {"'": "'", "\n": ""}
BEFORE_LETTERS = frozenset("bf")
"""Escapes that no writer of JSON puts before a word (`\\frac`, `\\bin`), since texts hold neither a form feed nor a
backspace."""
_LETTERS = re.compile(r"[A-Za-z]{2}")
_CODES = {
    "u": re.compile(r"[0-9a-fA-F]{4}"),
    "x": re.compile(r"[0-9a-fA-F]{2}"),
    "U": re.compile(r"000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4}"),
}
_FIRST_HALF = re.compile("[\ud800-\udbff]")
MAX_INTEGER = 10**MAX_DIGITS
_HARMLESS = frozenset({str, bool, type(None)})
_NO_CONTROL = re.compile(rb"(?<!\\)(?>\\\\)*+\\[bf][A-Za-z]{2}")
MAX_CONTAINERS = 50_000
"""Containers and keys. jiter blocks all other threads, and takes a tenth of a second for a megabyte of `{}`."""
_CLOSERS = {"{": "}", "[": "]"}


class NotJson(ValueError):
    """The text is not JSON because of `cause`.

    `position`: of the fault, in characters from 0. `depth`: containers that were open there.
    """

    def __init__(self, cause: str, position: int, depth: int = 0) -> None:
        super().__init__(f"{cause} (character {position})")
        self.cause = cause
        self.position = position
        self.depth = depth


def loads(text: str, *, lenient: bool = False) -> Any:
    """Return the one value in `text`, in strict JSON or in the lenient dialect. Raises NotJson, and nothing else."""
    reader = Reader(text, lenient=lenient)
    value, end = reader.read(0)
    end = reader.skip_blanks(end)
    if end < len(text):
        raise NotJson("the text goes on after the value", end)
    return value


def loads_or(text: str, otherwise: Any = None) -> Any:
    """Return the one value in `text`, in the lenient dialect; `otherwise` where it holds none."""
    try:
        return loads(text, lenient=True)
    except NotJson:
        return otherwise


def behind(pattern: re.Pattern[str], text: str, here: int) -> int:
    """Return the end of what a pattern matches at a position: the position itself where it matches nothing."""
    match = pattern.match(text, here)
    return match.end() if match else here


class Halves:
    """Mends a text that comes in parts: a first half at the end of one waits for the next."""

    def __init__(self) -> None:
        self._half = ""

    def add(self, part: str) -> str:
        """Return what can be said of the text now."""
        if part.isascii() and not self._half:
            return part
        text, self._half = self._half + part, ""
        if _FIRST_HALF.fullmatch(text[-1:]):
            text, self._half = text[:-1], text[-1]
        return well_formed(text)

    def end(self) -> str:
        """Return what stands for a half that stayed alone."""
        half, self._half = self._half, ""
        return well_formed(half)


class Reader:
    """Reads values from one text. `lenient`: the dialect."""

    def __init__(self, text: str, *, lenient: bool = False) -> None:
        self._text = text
        self._lenient = lenient
        self._quotes = "\"'" if lenient else '"'
        self._escapes = ESCAPES | _PYTHON_ESCAPES if lenient else ESCAPES
        self._words = _WORDS | _PYTHON_WORDS if lenient else _WORDS
        self._open: list[tuple[Any, str]] = []
        self._is_python: bool | None = None
        """Whether the first string has single quotes. None: there was no string yet."""
        self._closes = True
        """Whether an opened comment may be closed later in the text."""

    def read(self, start: int) -> tuple[Any, int]:
        """Return the value at `start`, after any blanks, and its end. Raises NotJson at the first invalid character."""
        self._open, self._is_python = [], None
        here = self.skip_blanks(start)
        while True:
            value, here, is_whole = self._begin(here)
            while is_whole:
                if not self._open:
                    return value, here
                box, key = self._open[-1]
                if isinstance(box, dict):
                    box[key] = value
                else:
                    box.append(value)
                value, here, is_whole = self._go_on(here)

    def skip_blanks(self, here: int) -> int:
        """Return the next position without a blank, or in the lenient dialect a comment."""
        text, end = self._text, -1
        while end != here:
            here = end = behind(BLANKS, text, here)
            if self._lenient and text.startswith("//", here):
                here = behind(_LINE, text, here)
            elif self._lenient and self._closes and text.startswith("/*", here):
                closing = text.find("*/", here + 2)
                self._closes = closing >= 0
                here = closing + 2 if self._closes else here
        return here

    def read_string(self, start: int) -> tuple[str, int]:
        """Return the decoded string whose quote is at `start`, and its end. Raises NotJson."""
        text, quote = self._text, self._text[start]
        if self._is_python is None:
            self._is_python = quote == "'"
        plain = _PLAIN[quote, self._lenient]
        closing = quote * 3 if self._lenient and text.startswith(quote * 3, start) else quote
        parts: list[str] = []
        here = start + len(closing)
        while True:
            end = behind(plain, text, here)
            parts.append(text[here:end])
            if end == len(text):
                raise self._wrong("a string is not closed", end)
            if text.startswith(closing, end):
                whole = "".join(parts)
                return well_formed(whole), end + len(closing)
            if text[end] == quote:
                parts.append(quote)
                here = end + 1
                continue
            if text[end] != "\\":
                raise self._wrong("a control character stands unescaped in a string", end)
            part, here = self._escape(end)
            parts.append(part)

    def _begin(self, here: int) -> tuple[Any, int, bool]:
        """Read a scalar or an empty container, or open a container and go to its first value."""
        char = self._text[here : here + 1]
        if char and char in self._quotes:
            value, end = self.read_string(here)
            return value, end, True
        closer = _CLOSERS.get(char)
        if closer is None:
            value, end = self._scalar(here)
            return value, end, True
        if len(self._open) >= MAX_DEPTH:
            raise self._wrong(f"more than {MAX_DEPTH} objects and lists inside each other", here)
        box: Any = {} if char == "{" else []
        self._open.append((box, ""))
        here = self.skip_blanks(here + 1)
        if self._text.startswith(closer, here):
            self._open.pop()
            return box, here + 1, True
        return None, self._key(here) if char == "{" else here, False

    def _go_on(self, here: int) -> tuple[Any, int, bool]:
        """After a value in a container, go to the next value, or return the container, which is complete."""
        box, _ = self._open[-1]
        in_object = isinstance(box, dict)
        closer = "}" if in_object else "]"
        here = self.skip_blanks(here)
        char = self._text[here : here + 1]
        if char == ",":
            comma, here = here, self.skip_blanks(here + 1)
            char = self._text[here : here + 1]
            if char != closer:
                return None, self._key(here) if in_object else here, False
            if not self._lenient:
                raise self._wrong("a comma before the end", comma)
        if char != closer:
            raise self._wrong(f"',' or '{closer}' is expected", here)
        self._open.pop()
        return box, here + 1, True

    def _key(self, here: int) -> int:
        """Read a key and its colon, and return the position of the value."""
        char = self._text[here : here + 1]
        if not char or char not in self._quotes:
            raise self._wrong("a key in quotes is expected", here)
        key, end = self.read_string(here)
        if self._lenient and "\\_" in key and (plain := key.replace("\\_", "_")) in ONCE_KEYS:
            key = plain  # As Markdown escapes it: "next\_node".
        box, _ = self._open[-1]
        if key in ONCE_KEYS and key in box:
            raise self._wrong(f"`{key}` occurs twice in one object", here)
        end = self.skip_blanks(end)
        if not self._text.startswith(":", end):
            raise self._wrong("':' is expected", end)
        self._open[-1] = box, key
        return self.skip_blanks(end + 1)

    def _scalar(self, here: int) -> tuple[Any, int]:
        number = _NUMBER.match(self._text, here)
        if number:
            return self._number(number), number.end()
        word = _WORD.match(self._text, here)
        if word and word[0] in self._words:
            return self._words[word[0]], word.end()
        if word and word[0].lstrip("+-") in {"NaN", "nan", "Infinity", "inf"}:
            raise self._wrong(f"{word[0]} is no JSON number", here)
        raise self._wrong("a value is expected", here)

    def _number(self, match: re.Match[str]) -> int | float:
        digits = match[0]
        if len(digits) > MAX_DIGITS:
            raise self._wrong(f"a number of more than {MAX_DIGITS} characters", match.start())
        if match.lastindex is None:
            return int(digits)
        number = float(digits)
        if math.isinf(number):
            raise self._wrong("a number too large for 64 bits", match.start())
        return number

    def _escape(self, start: int) -> tuple[str, int]:
        """Return the character of the escape at `start`, and its end."""
        char = self._text[start + 1 : start + 2]
        if char in BEFORE_LETTERS and char and _LETTERS.match(self._text, start + 2):
            return "\\" + char, start + 2
        if char in self._escapes and char:
            return self._escapes[char], start + 2
        if char == "u" or (self._is_python and char in {"x", "U"}):
            code = _CODES[char].match(self._text, start + 2)
            if code:
                return chr(int(code[0], 16)), code.end()
        if not char:
            raise self._wrong("a string is not closed", start + 1)
        if self._lenient:
            return "\\" + char, start + 2
        raise self._wrong(f"\\{char} is no escape", start)

    def _wrong(self, cause: str, position: int) -> NotJson:
        if position >= len(self._text):
            cause = f"the text ends too early: {cause}"
        return NotJson(cause, position, len(self._open))


def well_formed_object(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    r"""Read one object of strict JSON, from `start` to the last brace of the text, and return it with its end.

    The result equals that of the Reader, in a fraction of the time. None: the Reader must decide, which names fault
    and position. That holds for another dialect, a repeated key, an infinite number, half a surrogate pair, too deep
    nesting, and for `\f` before a letter.
    """
    end = text.rfind("}") + 1
    if end <= start:
        return None
    try:
        data = text[start:end].encode()
        if data.count(b"{") + data.count(b"[") + data.count(b'":') > MAX_CONTAINERS:
            return None
        if (b"\\f" in data or b"\\b" in data) and _NO_CONTROL.search(data):
            return None
        value = jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        return None
    return (value, end) if isinstance(value, dict) and _is_sane(value) else None


def _is_sane(value: dict[str, Any]) -> bool:
    """Whether all numbers are finite and short enough, and the nesting is within MAX_DEPTH."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner = []
        for box in level:
            for item in box.values() if type(box) is dict else box:
                kind = type(item)
                if kind in _HARMLESS:
                    continue
                if kind is dict or kind is list:
                    inner.append(item)
                elif item - item != 0 if kind is float else not -MAX_INTEGER < item < MAX_INTEGER:
                    return False
        if not inner:
            return True
        level = inner
    return False
