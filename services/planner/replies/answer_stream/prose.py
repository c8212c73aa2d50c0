r"""Finds the beginning of a JSON object in a reply. Reads the text around the action, each character once.

An object begins at `{` followed by `"`, with blanks in between or not. Everything before it does not count: text, a
byte order mark, fences, thoughts. A list is searched item by item. Other braces and brackets are recognised, so that
nothing *inside* them is taken for an action:

- `{word`, `[word`, `{{`: no notation begins like that, so it is text, and the search continues right after it;
- `{}`, `[1]`, `{x: 1}`, `{%}`: skipped up to the balancing bracket, unless a quote, a tag or a node comes before it;
- `["a", "b c"]`: a list of plain texts, skipped;
- `"args": {`, `save({`, `<args>{`: a value of something that broke, so no action: the finder is `lost`;
- `{'next_node': …`, `{next_node: …`, `{ // "…`, `["{…`, `"{\"…`: Python, JavaScript, an encoded or a broken object. Its
  strings may hold anything, and only a parser of the whole reply can read them: the finder is `lost` and finds nothing.
"""

import re
from collections.abc import Callable

from services.planner.replies.actions.names import is_argument, lead_on
from services.planner.replies.strict_json import BLANKS, behind
from services.planner.replies.thoughts import CLOSING, OPENING, opens, pass_marks

_NODE = "next_node"
_SPOKEN_OF = re.compile(r"next[ _-]?node", re.IGNORECASE)
_NOTABLE = re.compile(rf"(?P<closing>{CLOSING})|(?P<opening>{OPENING})|[\[{{]")
_WORD = re.compile(r"[\w$.-]*")
_CONSTANTS = frozenset({"true", "false", "null", "True", "False", "None"})
_ITEMS = re.compile(r"[ \t\r\n,0-9.+-]*")
_PLAIN_TEXT = re.compile(r'[^"\\{\[]*')
_PLAIN = re.compile(r"""[^\[\]{}"'`<\u2018\u2019\u201c\u201d]*""")

_MOST_BEGINNINGS = 10_000
"""Brackets and marks that begin no action. A reply with more of them is left to the final parse."""
_BEHIND_KEY = frozenset("}:=\"'`\u2018\u2019\u201c\u201d")

_Move = Callable[[str, int], int]
"""Reads from a position on and returns the position after it. Reads a character or changes the state."""


class ObjectFinder:
    """Finds the next object.

    `found` is set once the quote of its first key is read; `lost` once objects cannot be recognised any more.
    """

    def __init__(self) -> None:
        self.found = False
        self.lost = False
        self.characters_examined = 0
        self._move: _Move = self._text
        self.is_amid = False
        """Prose precedes the object on its line."""
        self._thought = 0
        self._thoughts = 0
        """Of this mark that are open."""
        self._lists = 0
        self._listed = False
        self._depth = 0
        self._tail = ""
        self._lead = ""
        self._odd = False
        self._beginnings = 0

    def search(self, text: str, start: int) -> int:
        """Read `text` from `start` on. Return the position after the quote when `found`, else the end of `text`."""
        if self.found:
            self.found = False
            self._lead = ""
            self._after_value()
        here = start
        while here < len(text) and not (self.found or self.lost):
            before = here
            here = self._move(text, here)
            self.characters_examined += max(1, here - before)
            passed = text[before:here]
            if self._odd and _SPOKEN_OF.search(self._lead + passed) and not self.found:
                self.lost = True  # A node after an odd brace: the brace may have been an action.
            self._lead = lead_on(self._lead, passed)
        return here

    def _begin(self, move: _Move) -> None:
        """Continue after a bracket or a mark. After too many of them, stop."""
        self._move = move
        self._beginnings += 1
        self.lost = self.lost or self._beginnings > _MOST_BEGINNINGS

    def _text(self, text: str, here: int) -> int:
        notable = _NOTABLE.search(text, here)
        end = notable.start() if notable else len(text)
        line = text[here:end].rpartition("\n")
        self.is_amid = bool(line[2].strip("\ufeff \t`")) or (self.is_amid and not line[1])
        if notable is None:
            return end
        if notable["opening"] is not None:
            self._thought, self._thoughts = opens(text, end) or 0, 1
            self._begin(self._in_thought)
        elif notable["closing"] is not None:
            self.is_amid = self._odd = False
            self._begin(self._text)
        else:
            self.lost = is_argument(lead_on(self._lead, text[here:end]))
            self._lists = int(notable[0] == "[")
            self._begin(self._bracket if self._lists else self._brace)
        return notable.end()

    def _in_thought(self, text: str, here: int) -> int:
        end, depth = pass_marks(text, here, self._thought, self._thoughts)
        if depth is not None:
            self._thoughts = depth
            return len(text)
        self.is_amid = False
        self._move = self._text
        return end

    def _brace(self, text: str, here: int) -> int:
        """Read after `{`."""
        here = behind(BLANKS, text, here)
        if here == len(text):
            return here
        char = text[here]
        if char == '"':
            self.found = self._listed = True
        elif char == "}":
            self._after_value()
        elif self._lists and self._listed:
            self.lost = True
        elif char in "{[":
            self._lists = 0
            self._odd = True
            self._move = self._text
            return here
        else:
            self._lists, self._depth, self._tail = 0, 1, ""
            self._move = self._word if behind(_WORD, char, 0) else self._inside
            return here
        return here + 1

    def _word(self, text: str, here: int) -> int:
        """Read after `{` and the beginning of a word, which is a key without quotes, or text."""
        end = behind(_WORD, text, here)
        self._remember(text[here:end])
        if end < len(text):
            self._move = self._behind_word
        return end

    def _behind_word(self, text: str, here: int) -> int:
        here = behind(BLANKS, text, here)
        if here < len(text):
            self._odd = self._odd or text[here] not in _BEHIND_KEY
            self._move = self._inside if text[here] in _BEHIND_KEY else self._text
        return here

    def _bracket(self, text: str, here: int) -> int:
        """Read after a `[` that begins a list."""
        here = behind(BLANKS, text, here)
        if here == len(text):
            return here
        char = text[here]
        if char in '[]{"' or behind(_ITEMS, char, 0):
            self._move = self._item
        elif char in "'\\" or self._listed:
            self.lost = True
        else:
            self._lists, self._tail = 0, ""
            self._move = self._list_word
        return here

    def _list_word(self, text: str, here: int) -> int:
        """Read after `[` and the beginning of a word, which is a constant, or text."""
        end = behind(_WORD, text, here)
        self._tail = (self._tail + text[here:end])[-len(_NODE) :]
        if end < len(text):
            self.lost = self._tail in _CONSTANTS
            self._move = self._text
        return end

    def _item(self, text: str, here: int) -> int:
        """Read between the values of a list."""
        here = behind(_ITEMS, text, here)
        if here == len(text):
            return here
        if text[here] == "{":
            self._begin(self._brace)
        elif text[here] == "[":
            self._lists += 1
            self._begin(self._bracket)
        elif text[here] == '"':
            self._begin(self._listed_text)
        elif text[here] == "]":
            self._lists -= 1
            self._after_value()
        else:
            self.lost = True
        return here + 1

    def _listed_text(self, text: str, here: int) -> int:
        """Read a text in a list. A text that may hold an object or escapes is left to the final parse."""
        end = behind(_PLAIN_TEXT, text, here)
        if end == len(text):
            return end
        self.lost = text[end] != '"'
        self._move = self._behind_listed_text
        return end + 1

    def _behind_listed_text(self, text: str, here: int) -> int:
        here = behind(BLANKS, text, here)
        if here < len(text):
            self.lost = text[here] not in ",]"
            self._move = self._item
        return here

    def _after_value(self) -> None:
        self._listed = self._lists > 0
        self._move = self._item if self._listed else self._text

    def _inside(self, text: str, here: int) -> int:
        """Skip brackets that hold no object, as long as nothing in them could be one."""
        end = behind(_PLAIN, text, here)
        self._remember(text[here:end])
        if end == len(text) or self.lost:
            return end
        if text[end] in "[{":
            self._depth += 1
            self._begin(self._inside)
        elif text[end] in "]}":
            self._depth -= 1
            self._move = self._inside if self._depth else self._text
        else:
            self.lost = True
        return end + 1

    def _remember(self, run: str) -> None:
        window = self._tail + run
        self.lost = self.lost or _NODE in window
        self._tail = window[-len(_NODE) :]
