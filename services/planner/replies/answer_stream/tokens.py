"""Reads the tokens of one JSON object while it arrives: a pushdown machine with a table of legal moves.

Each character is read once.

A token goes to `sink(token, depth, text)` as soon as it is certain. `depth` counts the containers around it (0 for the
object itself, 1 for its keys and members). The text of a string comes in parts, decoded; a key comes whole, or cut if
it is very long.

Like the final parse, it also accepts trailing commas, raw control characters in strings, `True`, `False` and `None`.
Anything else, or a repeated key that may occur once, makes the machine `broken`: it emits nothing more, and the final
parse decides.

Halves of a surrogate pair are joined, written as escapes or not, also in separate parts. A lone half becomes U+FFFD.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto

from services.planner.replies.strict_json import BEFORE_LETTERS, BLANKS, ESCAPES, MAX_DEPTH, ONCE_KEYS, Halves, behind


class Token(Enum):
    """The tokens that the sink receives. KEY, TEXT and SCALAR have a text."""

    KEY = auto()
    OPEN_OBJECT = auto()
    OPEN_ARRAY = auto()
    CLOSE = auto()
    TEXT_BEGINS = auto()
    TEXT = auto()
    TEXT_ENDS = auto()
    SCALAR = auto()


Sink = Callable[[Token, int, str], None]


class _Expect(Enum):
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    ITEM = auto()
    AFTER_MEMBER = auto()
    AFTER_ITEM = auto()


class _Move(Enum):
    KEY = auto()
    TEXT = auto()
    OBJECT = auto()
    ARRAY = auto()
    CLOSE = auto()
    SCALAR = auto()


_VALUES = {'"': _Move.TEXT, "{": _Move.OBJECT, "[": _Move.ARRAY, **dict.fromkeys("-0123456789tfnTFN", _Move.SCALAR)}
_MOVES: dict[_Expect, Mapping[str, _Move | _Expect]] = {
    _Expect.KEY: {'"': _Move.KEY, "}": _Move.CLOSE},
    _Expect.COLON: {":": _Expect.VALUE},
    _Expect.VALUE: _VALUES,
    _Expect.ITEM: {**_VALUES, "]": _Move.CLOSE},
    _Expect.AFTER_MEMBER: {",": _Expect.KEY, "}": _Move.CLOSE},
    _Expect.AFTER_ITEM: {",": _Expect.ITEM, "]": _Move.CLOSE},
}
"""By what is expected: what a character begins or closes, or what is expected behind it."""

MAX_KEY_CHARACTERS = 256
MAX_SCALAR_CHARACTERS = 64
MAX_VALUES = 50_000
"""Keys, texts and containers of one object. A larger one is left to the final parse."""

_RUN = re.compile(r'(?>[^"\\]++|\\["\\/nrt]|\\u[0-9a-fA-F]{4})*+')
"""A part of a string that holds no other escape, and none that is cut."""
_ESCAPE = re.compile(r"\\(?:u(.{4})|(.))")
_IN_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|True|False|None")
_CODE = re.compile(r"u[0-9a-fA-F]{4}")
_BEGUN = re.compile(r"[bf]|u[0-9a-fA-F]{0,3}")


def _unescaped(run: str) -> str:
    if "\\" not in run:
        return run
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else ESCAPES[escape[2]], run)


class Tokens:
    """Reads one object.

    `ended`: its last brace was read. `broken`: the text is not a valid object. `stopped`: the owner stopped it.
    """

    def __init__(self, sink: Sink) -> None:
        self.ended = False
        self.broken = False
        self.stopped = False
        self.characters_examined = 0
        self._sink = sink
        self._state = self._string
        self._expect = _Expect.KEY
        self._arrays = [False]
        self._seen: list[frozenset[str]] = [frozenset()]
        self._key: list[str] | None = []
        self._key_length = 0
        self._escape = ""
        self._scalar = ""
        self._halves = Halves()
        self._values = 0

    def stop(self) -> None:
        """Stop reading, since the rest does not matter."""
        self.stopped = True

    def flows_on(self, text: str) -> str | None:
        """Return the decoded `text` if all of it belongs to the current string, else None.

        In that case it counts as read, and the sink does not receive it.
        """
        if self._key is not None or self._state != self._string:
            return None
        if "\\" in text or '"' in text:
            if _RUN.fullmatch(text) is None:
                return None
            text = _unescaped(text)
        self.characters_examined += len(text)
        return self._halves.add(text)

    def read(self, text: str, start: int) -> int:
        """Read `text` from `start` on, and return where reading stopped.

        The first call starts after the quote of the first key.
        """
        here = start
        while here < len(text) and not (self.ended or self.broken or self.stopped):
            before = here
            here = self._state(text, here)
            self.characters_examined += max(1, here - before)
        return here

    def _structure(self, text: str, here: int) -> int:
        here = behind(BLANKS, text, here)
        if here == len(text):
            return here
        move = _MOVES[self._expect].get(text[here])
        if move is None:
            self.broken = True
        elif isinstance(move, _Expect):
            self._expect = move
        elif move is _Move.SCALAR:
            self._scalar = ""
            self._state = self._in_scalar
            return here
        else:
            self._begin_or_close(move)
        return here + 1

    def _begin_or_close(self, move: _Move) -> None:
        depth = len(self._arrays)
        self._values += 1
        if self._values > MAX_VALUES:
            self.broken = True
            return
        if move is _Move.CLOSE:
            self._arrays.pop()
            self._seen.pop()
            self._sink(Token.CLOSE, depth - 1, "")
            self.ended = depth == 1
            self._value_ends()
        elif move is _Move.KEY:
            self._key, self._key_length = [], 0
            self._state = self._string
        elif move is _Move.TEXT:
            self._key = None
            self._sink(Token.TEXT_BEGINS, depth, "")
            self._state = self._string
        elif depth >= MAX_DEPTH:
            self.broken = True
        else:
            self._sink(Token.OPEN_ARRAY if move is _Move.ARRAY else Token.OPEN_OBJECT, depth, "")
            self._arrays.append(move is _Move.ARRAY)
            self._seen.append(frozenset())
            self._expect = _Expect.ITEM if move is _Move.ARRAY else _Expect.KEY

    def _value_ends(self) -> None:
        if self._arrays:
            self._expect = _Expect.AFTER_ITEM if self._arrays[-1] else _Expect.AFTER_MEMBER

    def _in_scalar(self, text: str, here: int) -> int:
        end = behind(_IN_SCALAR, text, here)
        self._scalar += text[here:end][: MAX_SCALAR_CHARACTERS + 1]
        if len(self._scalar) > MAX_SCALAR_CHARACTERS:
            self.broken = True
        elif end < len(text):
            if _SCALAR.fullmatch(self._scalar):
                self._sink(Token.SCALAR, len(self._arrays), self._scalar)
                self._state = self._structure
                self._value_ends()
            else:
                self.broken = True
        return end

    def _string(self, text: str, here: int) -> int:
        end = behind(_RUN, text, here)
        if end > here:
            self._piece(_unescaped(text[here:end]))
        if end == len(text):
            return end
        if text[end] == '"':
            self._string_ends()
        else:
            self._escape = ""
            self._state = self._in_escape
        return end + 1

    def _in_escape(self, text: str, here: int) -> int:
        """Read an escape that no run holds, because its beginning came in another part or a letter may follow."""
        char = text[here]
        if self._escape and self._escape[0] in BEFORE_LETTERS:
            is_letter = char.isascii() and char.isalpha()
            if is_letter and len(self._escape) == 1:
                self._escape += char
                return here + 1
            escape, letter = self._escape[0], self._escape[1:]
            self._piece(("\\" + escape if is_letter else ESCAPES[escape]) + letter)
            self._state = self._string
            return here
        self._escape += char
        if self._escape in ESCAPES and char not in BEFORE_LETTERS:
            self._piece(ESCAPES[char])
            self._state = self._string
        elif _CODE.fullmatch(self._escape):
            self._piece(chr(int(self._escape[1:], 16)))
            self._state = self._string
        else:
            self.broken = _BEGUN.fullmatch(self._escape) is None
        return here + 1

    def _piece(self, text: str) -> None:
        """Pass on a decoded part of the string."""
        piece = self._halves.add(text)
        if not piece:
            return
        if self._key is None:
            self._sink(Token.TEXT, len(self._arrays), piece)
        elif self._key_length <= MAX_KEY_CHARACTERS:
            self._key.append(piece)
            self._key_length += len(piece)

    def _string_ends(self) -> None:
        self._piece(self._halves.end())
        self._state = self._structure
        if self._key is None:
            self._sink(Token.TEXT_ENDS, len(self._arrays), "")
            self._value_ends()
            return
        key = "".join(self._key)
        self.broken = key in self._seen[-1]
        if key in ONCE_KEYS:
            self._seen[-1] |= {key}
        if not self.broken:
            self._sink(Token.KEY, len(self._arrays), key)
            self._expect = _Expect.COLON
