"""Takes marked blocks out of a text while it arrives. What is shown is never taken back, and no block is ever shown.

Rule 1: the split does not matter: a whole text is the same text fed at once. So the state after a turn's parts is
rebuilt by feeding their raw text again.
Rule 2: after each chunk everything is shown that cannot belong to a block, but for blanks at the end.
Rule 3: a block is opaque from its bracket on: what its strings hold is data, and it is hidden whatever becomes of it.
The exception is an echo, a block that was read somewhere before: it is a quotation, and stays.
Rule 4: work is linear in the text, and memory is bounded by the longest block: nothing is read twice because more came.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from services.planner.replies.marked.blocks import Blocks, Page, Response
from services.planner.replies.marked.openers import BLANKS, Before, NotBlock, Opener, Openers, Undecided
from services.shared.runs.pages.page_types import SUGGESTIONS

MAX_BLOCK_BYTES = 256 << 10
MAX_COMPARED = 256
"""Blocks of a turn that are looked for in what was shown. Any further one is taken for a quotation."""
_SLICE_CHARACTERS = 8 << 10
"""A long chunk is read in slices, since what follows a block is copied."""
_openers = lru_cache(maxsize=16)(Openers)
_BRACKETS = {"{": re.compile(r'[{}"]'), "[": re.compile(r'[\[\]"]')}
_IN_STRING = re.compile(r'["\\]')
_BLANK_RUNS = re.compile(f"[{BLANKS}]++")
_BOLD = {"": "", "*": r"\*{0,3}+", "_": "(?>__)?"}
_CUT_BOLD = _BOLD | {"_": "_{0,2}+"}
_CLOSING = {
    (sign, has_fence): (
        re.compile(_BOLD[sign] + (f"(?>[{BLANKS}]*+```)?" if has_fence else "")),
        re.compile(_CUT_BOLD[sign] + (f"[{BLANKS}]*+`{{0,2}}+" if has_fence else "")),
    )
    for sign in _BOLD
    for has_fence in (False, True)
}
"""What closes behind a block, whole and cut, by the sign of bold that is open and whether a fence is."""


class Echoes:
    """What a conversation has shown the model: a block whose text is found there is a quotation."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._texts = list(texts)
        self._folded: list[str] = []
        """Those that may hold a block, without blanks, since who quotes JSON may lay it out anew."""
        self._compared: dict[str, bool] = {}

    def add(self, texts: Iterable[str]) -> None:
        """Take more that the model is shown from now on."""
        self._texts += texts
        self._compared = {block: True for block, is_found in self._compared.items() if is_found}

    def __contains__(self, block: str) -> bool:
        self._folded += [_folded(text) for text in self._texts if "{" in text or "[" in text]
        self._texts.clear()
        if not self._folded:
            return False
        folded = _folded(block)
        if folded not in self._compared:
            if len(self._compared) >= MAX_COMPARED:
                return True
            self._compared[folded] = any(folded in text for text in self._folded)
        return self._compared[folded]


def _folded(text: str) -> str:
    return _BLANK_RUNS.sub("", text)


class _Block:
    """A block from its bracket on, read to its end. `before_json`: its text so far, from which NAME stands."""

    def __init__(self, opener: Opener, before_json: str, name_at: int) -> None:
        self.opener = opener
        self.is_closed = self.is_too_large = False
        self._before_json, self._name_at = before_json, name_at
        self._parts: list[str] = []
        self._bracket = ""
        self._bytes = self._depth = 0
        self._in_string = self._is_escaped = False

    @property
    def json(self) -> str:
        """The JSON."""
        return "".join(self._parts)

    @property
    def text(self) -> str:
        """All of it."""
        return self._before_json + self.json

    @property
    def marked(self) -> str:
        """The text from NAME on."""
        return self.text[self._name_at :]

    def read(self, text: str) -> int:
        """Read on, and return the position behind the bracket that closes the block, or the end of the text."""
        end = self._end(text)
        self._bytes += len(text[:end].encode(errors="surrogatepass"))
        if self._bytes > MAX_BLOCK_BYTES:
            self.is_too_large, self._parts = True, []
        else:
            self._parts.append(text[:end])
        return end

    def _end(self, text: str) -> int:
        here = 0
        self._bracket = self._bracket or text[0]
        outside = _BRACKETS[self._bracket]
        while here < len(text):
            if self._is_escaped:
                self._is_escaped = False
                here += 1
                continue
            found = (_IN_STRING if self._in_string else outside).search(text, here)
            if found is None:
                break
            here = found.end()
            if self._in_string:
                self._is_escaped = found[0] == "\\"
                self._in_string = self._is_escaped
            elif found[0] == '"':
                self._in_string = True
            else:
                self._depth += 1 if found[0] == self._bracket else -1
                if not self._depth:
                    self.is_closed = True
                    return here
        return len(text)


class MarkerScanner:
    """Scans the text of one turn, through all its parts."""

    def __init__(self, page: Page, echoes: Echoes | None = None) -> None:
        self.echoes = echoes or Echoes()
        self._openers = _openers((*SUGGESTIONS, *page.by_marker))
        self._blocks = Blocks(page)
        self._before = Before()
        self._block: _Block | None = None
        """The block that the text is in, or whose end may be followed by signs that belong to it."""
        self._pending: list[str] = []
        """What may belong to a block; `_undecided` says how long this stays open."""
        self._undecided: Undecided | None = None
        self._shown: list[str] = []
        self._blanks: list[str] = []
        """The blanks at the end of what was released: they are shown before the next other character."""
        self.characters_examined = 0

    @property
    def message(self) -> str:
        """What was shown so far."""
        return "".join(self._shown)

    @property
    def open_block(self) -> str | None:
        """The name of the block that is being written."""
        return None if self._block is None or self._block.is_closed else self._block.opener.name

    def feed(self, chunk: str) -> str:
        """Read more of the text, and return what can be shown now."""
        count = len(self._shown)
        if len(chunk) <= _SLICE_CHARACTERS:
            self._read(chunk)
        else:
            for start in range(0, len(chunk), _SLICE_CHARACTERS):
                self._read(chunk[start : start + _SLICE_CHARACTERS])
        return "".join(self._shown[count:])

    def finish(self) -> tuple[str, Response]:
        """Return the end of the text, and the response."""
        count, rest = len(self._shown), "".join(self._pending)
        if self.open_block is not None:
            self._blocks.warn("truncated_json")
        elif self._undecided is not None and self._undecided.has_colon:
            self._blocks.warn("truncated_marker")
        else:
            self._release(rest if self._block is None else self._behind(self._block, rest))
        return "".join(self._shown[count:]), self._blocks.response(self.message)

    def cancel(self) -> Response:
        """Drop what is not shown yet, and return the response: what was shown, without elements."""
        return self._blocks.cancelled(self.message)

    def _read(self, text: str) -> None:
        rest = text
        if self._undecided is not None:
            self._pending.append(text)
            if self._undecided.more and not text.strip(self._undecided.more):
                self.characters_examined += len(text)
                return
            rest, self._pending, self._undecided = "".join(self._pending), [], None
        while rest:
            self.characters_examined += len(rest)
            if self._block is None:
                rest = self._read_text(rest)
            elif not self._block.is_closed:
                rest = self._read_block(self._block, rest)
            elif _CLOSING[self._block.opener.closing][1].fullmatch(rest):
                rest = self._wait(rest, Undecided(BLANKS if rest[-1] in BLANKS else "", has_colon=False))
            else:
                rest = self._behind(self._block, rest)

    def _wait(self, pending: str, undecided: Undecided) -> str:
        self._pending, self._undecided = [pending], undecided
        return ""

    def _release(self, text: str) -> None:
        """Show a text, but for blanks at the beginning and at the end of the message."""
        self._before.advance(text)
        if body := text.rstrip(BLANKS):
            self._shown.append("".join([*self._blanks, body]) if self._shown else body.lstrip(BLANKS))
            self._blanks.clear()
        if len(body) < len(text):
            self._blanks.append(text[len(body) :])

    def _read_text(self, text: str) -> str:
        """Show what stands before the next block, and return what follows from its bracket on."""
        text, here = self._before.last + text, 1
        while (start := self._openers.next_candidate(text, here)) is not None:
            self._release(text[here:start])
            reading = self._openers.reading(text, start, self._before)
            try:
                opener = reading.opener()
                self._block = _Block(opener, text[start : opener.json_at], opener.name_at - start)
                return text[opener.json_at :]
            except Undecided as undecided:
                return self._wait(text[start:], undecided)
            except NotBlock:
                self._release(text[start])
                here = start + 1
            finally:
                self.characters_examined += reading.here - start
        self._release(text[here:])
        return ""

    def _read_block(self, block: _Block, text: str) -> str:
        """Read on to the bracket that closes the block, and return what follows."""
        end = block.read(text)
        if not block.is_closed:
            return ""
        if block.is_too_large:
            self._blocks.warn("block_too_large")
        elif block.marked in self.echoes:
            self._blocks.warn("echoed_block")
            self._release(block.text)
            self._block = None
        else:
            self._blocks.add(block.opener.name, block.json)
        return text[end:]

    def _behind(self, block: _Block, text: str) -> str:
        """Drop what closes behind the block, and return what follows."""
        self._block = None
        self._before.end_block()
        found = _CLOSING[block.opener.closing][0].match(text)
        return text[found.end() :] if found else text
