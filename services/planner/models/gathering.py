"""Puts the pieces of a streamed reply together: its text, its reasoning and its native calls. No I/O.

Both ways to a model use it. Servers number, name and repeat the pieces of calls in many ways (`_whose`).
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any, Literal

import orjson

from contracts.runs.payload import Usage
from services.planner.models.errors import ModelFailed, no_reply
from services.planner.models.types import CallPiece, Delta, Reply, ending_of
from services.planner.models.wire import OpaqueFields
from services.planner.replies.strict_json import Halves

MAX_CALLS = 128
"""Native tool calls of one reply."""
MAX_CHECKS = 256
"""How often arguments may be parsed before they have ended, to find out whether they are whole."""
MAX_BEGINNING_CHARACTERS = 32
MIN_REPEATED_PIECES = 2
_UNDECIDED = re.compile(r"\s*(?:\{\s*\}?\s*|`{1,3}\w*\s*)?")
"""Arguments so far that may be an empty object before the real one, or the beginning of a code fence."""
_DROPPED = re.compile(r"\s*(?:\{\s*\}\s*(?=\{)|```\w*\s*)")
_MARKS_BEHIND = re.compile(r"(?<=\})\s*(?:</?[^<>{}\s]{1,40}>\s*)+\Z")
"""Marks of a template, such as `<|im_end|>` and `</tool_call>`."""
_SEAM = re.compile(r"\}\s*\{")
_BLANKS = re.compile(r"\s*")
_DECODER = JSONDecoder(strict=False)


class Strand:
    """A text that comes in pieces. Halves of a surrogate pair are joined, also over two pieces; a lone one is U+FFFD.

    Some servers repeat the text so far in each piece. They are known by three pieces, of which the second begins with
    the whole first one, and the third with the whole second one: then only what is new in a piece counts.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._halves = Halves()
        self._pieces = 0
        self._last = ""
        self._repeated = 0
        """Characters of the last piece that have been added."""
        self.held = ""
        """The second piece, while it may repeat the first one."""
        self._is_plain = False

    def __bool__(self) -> bool:
        """Whether anything has come."""
        return bool(self._parts)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    def add(self, piece: str) -> str:
        """Add a piece, and return what it adds to the text."""
        if not piece:
            return ""
        self._pieces += 1
        if self._is_plain:
            return self._added(piece)
        before, self._last = self._last, piece
        begins_so, grows = piece.startswith(before), len(piece) > len(before)
        if self._pieces == 1:
            added = piece
        elif self._pieces == 2 and begins_so and grows and before.strip():  # noqa: PLR2004, the second piece
            self.held = piece  # Until the third one comes.
            return ""
        elif begins_so and (grows if self.held else self._pieces > 2):  # noqa: PLR2004, as above
            self.held, added = "", piece[self._repeated :]
        else:
            self._is_plain = True
            self.held, added = "", self.held + piece
        self._repeated = len(piece)
        return self._added(added)

    def is_whole_in(self, piece: str) -> bool:
        """Whether a piece is all of a text that has come in several pieces."""
        return self._pieces >= MIN_REPEATED_PIECES and len(piece) == self._length and piece == self.text

    def end(self) -> str:
        """Return what was held back."""
        added, self.held = self._added(self.held), ""
        return added + self._added(self._halves.end())

    def _added(self, piece: str) -> str:
        text = self._halves.add(piece)
        if text:
            self._parts.append(text)
            self._length += len(text)
        return text


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a native call, as a server sends it. `index`: None where it gives no number."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""


class _Call:
    """A call that comes in pieces. Its arguments are passed on without an empty object or a code fence before them."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self._strand = Strand()
        self._beginning = ""
        """Arguments that are not passed on yet."""
        self._passed_on: list[str] = []
        self._is_fenced = False
        self._checks = 0
        self._is_whole: bool | None = False
        """None: not known."""

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self._passed_on) if self._passed_on else self._beginning

    @property
    def has_arguments(self) -> bool:
        """Whether the arguments have begun."""
        return bool(self._passed_on or self._beginning.strip())

    @property
    def is_whole(self) -> bool:
        """Whether the arguments so far are one whole object with a field."""
        if self._is_whole is None:
            self._checks += 1
            self._is_whole = self._checks <= MAX_CHECKS and _is_object(self.arguments)
        return self._is_whole

    def add(self, arguments: str) -> str:
        """Add a part of the arguments, and return what is passed on of them now."""
        return self._pass_on(self._strand.add(arguments))

    def end(self) -> list[str]:
        """Return the arguments, of several calls where they have run together."""
        held = self._strand.held
        if held and _is_object(held):  # The second of two pieces, which repeats the first.
            self._passed_on = [held]
        else:
            self._pass_on(self._strand.end())
        text = _MARKS_BEHIND.sub("", self.arguments).strip()
        text = text.removesuffix("```").rstrip() if self._is_fenced else text
        return _apart(text) if _SEAM.search(text) else [text]

    def _pass_on(self, text: str) -> str:
        if not text:
            return ""
        if not self._passed_on:
            text = self._beginning = self._beginning + text
            if len(text) <= MAX_BEGINNING_CHARACTERS and _UNDECIDED.fullmatch(text):
                return ""
            if (dropped := _DROPPED.match(text)) is not None:
                self._is_fenced = "`" in dropped[0]
                text = text[dropped.end() :]
        self._passed_on.append(text)
        self._is_whole = None if text.rstrip().endswith("}") or (self._is_whole and not text.strip()) else False
        return text


def _whose(call: _Call, piece: Piece) -> Literal["same", "new", "none"]:
    """Whether a piece belongs to the call that its number or id names, to a new one, or only repeats that one."""
    begins_object = piece.arguments.lstrip().startswith("{")
    if not piece.name and not begins_object:
        return "same"
    has_other_id = bool(call.id and piece.id) and piece.id != call.id
    has_other_name = bool(piece.name) and piece.name != call.name
    if call.is_whole and not (has_other_id or has_other_name) and piece.arguments.strip() == call.arguments.strip():
        return "none"
    if piece.name and has_other_id:
        return "new"
    if begins_object and call.is_whole:  # Some servers use one number and one id, or none, for all calls.
        return "new"
    # Before arguments another name is the next part of the name. The id does not matter: some send a new one each time.
    return "new" if has_other_name and (call.has_arguments or piece.index is None) else "same"


class Gathered:
    """The received parts of a reply."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text = Strand()
        self._reasoning = Strand()
        self._refusal = Strand()
        self._calls: list[_Call] = []
        self._by_index: dict[int, int] = {}
        self._by_id: dict[str, int] = {}
        """Number or id of a call in the stream -> the newest position in `_calls`."""
        self.opaque = OpaqueFields()
        self.tool_calls: tuple[dict[str, Any], ...] = ()
        """The native calls, in order, once the reply has ended; arguments as text."""

    @property
    def text(self) -> str:
        """The text so far."""
        return self._text.text

    @property
    def reasoning(self) -> str:
        """The native reasoning so far."""
        return self._reasoning.text

    @property
    def begun(self) -> bool:
        """Whether any delta was passed on."""
        return bool(self._text or self._reasoning or self._calls)

    def end(self) -> Iterator[Delta]:
        """Yield what was held back, and put the calls together. Raises ModelFailed."""
        text, thought = self._text.end(), self._reasoning.end()
        self._refusal.end()
        # A server may take all of a reply for reasoning. What is one whole object is no thought.
        if not self._text and not self._calls and _is_object(self.reasoning):
            text = self._text.add(self.reasoning)
        if text or thought:
            yield Delta(text, thought)
        self.tool_calls = tuple(
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
            for call in self._calls
            for arguments in call.end()
            if call.name or arguments
        )
        self._check(len(self.tool_calls))

    def failure(self, finish_reason: str | None, content_type: str = "", beginning: bytes = b"") -> ModelFailed | None:
        """Return the failure of a reply without text and calls (`errors.no_reply`); None for any other reply."""
        if self.text.strip() or self.tool_calls:
            return None
        return no_reply(
            self._model, finish_reason, content_type, beginning, reasoning=self.reasoning, refusal=self._refusal.text
        )

    def reply(self, usage: Usage, finish_reason: str | None, *, is_ended: bool) -> Reply:
        """Return the whole reply. `is_ended`: the protocol's own end has come."""
        return Reply(
            text=self.text,
            reasoning=self.reasoning or None,
            usage=usage,
            finish_reason=finish_reason,
            ending=ending_of(finish_reason, is_ended=is_ended),
            model=self._model,
            tool_calls=self.tool_calls,
            opaque=self.opaque.of(self._model, self.tool_calls, self.reasoning),
        )

    def _add(self, text: str, thought: str, *, is_last: bool) -> list[Delta]:
        """Add a part of the text and of the reasoning. `is_last`: it comes with the end of the reply."""
        # Some servers repeat the whole text there.
        text = "" if is_last and self._text.is_whole_in(text) else self._text.add(text)
        thought = self._reasoning.add(thought) if thought else ""
        return [Delta(text, thought)] if text or thought else []

    def _add_call(self, piece: Piece) -> list[Delta]:
        """Add a part of a native call. Raises ModelFailed."""
        position = self._position(piece)
        whose = "new" if position is None else _whose(self._calls[position], piece)
        if whose == "none":
            return []
        name = piece.name
        if position is None or whose == "new":
            name = piece.name or (self._calls[position].name if position is not None else "")
            position = len(self._calls)
            self._calls.append(_Call())
            self._check(len(self._calls))
        call = self._calls[position]
        if piece.index is not None:
            self._by_index[piece.index] = position
        call.id = call.id or piece.id
        self._by_id[call.id] = position
        name = "" if name == call.name else name  # Some servers repeat the name in each piece.
        call.name += name
        arguments = call.add(piece.arguments)
        return [Delta(call=CallPiece(position, name, arguments))]

    def _position(self, piece: Piece) -> int | None:
        """Return the position of the call that a piece may belong to."""
        newest = len(self._calls) - 1 if self._calls else None
        if piece.index in self._by_index:
            return self._by_index[piece.index]
        is_known = not piece.id or piece.id in self._by_id
        # Without a name, a new number is that of the piece.
        if piece.index is not None and (piece.name or not is_known):
            return None
        return self._by_id.get(piece.id, newest) if piece.id else newest

    def _check(self, calls: int) -> None:
        if calls > MAX_CALLS:
            raise ModelFailed("model_failed", f"{self._model} sent more than {MAX_CALLS} tool calls in one reply")


def _is_object(text: str) -> bool:
    with suppress(orjson.JSONDecodeError):
        return bool(isinstance(found := orjson.loads(text), dict) and found)
    return False


def _apart(text: str) -> list[str]:
    """Return the objects of a text that holds several, one after the other; any other text as it is."""
    found: list[str] = []
    here = 0
    try:
        while here < len(text) and len(found) <= MAX_CALLS and text[here] == "{":
            _, end = _DECODER.raw_decode(text, here)
            found.append(text[here:end])
            blanks = _BLANKS.match(text, end)
            here = blanks.end() if blanks else end
    except (ValueError, RecursionError):
        return [text]
    return found if here == len(text) or len(found) > MAX_CALLS else [text]
