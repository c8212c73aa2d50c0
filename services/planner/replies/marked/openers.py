r"""Where a marked block begins: the grammar of everything before its JSON, read from one position of a text.

    block  = [lead | fence] [bold] NAME [bold] blanks ":" blanks [bold] blanks [fence] JSON [bold] [blanks "```"]
    lead   = at the start of a line, one of "# " to "###### ", "- ", "* ", "> ", "1. "
    fence  = "```" [A-Za-z0-9_+-]* [ \t\r]* "\n" blanks; the first one at the start of a line
    bold   = "*" to "***", or "__"

Rule 1: JSON can follow the bracket, else the text is prose: after "{" a quote or "}", after "[" a value or "]".
Rule 2: a backtick directly before the block makes it code; a pair of backticks around NAME, with or without its colon,
is decoration. NAME without decoration stands at no letter, digit or `_`.
Rule 3: a decorated NAME alone on its line needs no colon if the JSON, or its fence, begins the next line. A lead
decorates as well: models write headings.
Rule 4: the text may end anywhere. `Undecided` says that a longer text could still be a block.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

BLANKS = "\t\n\r "
"""What counts as blank: these four characters alone."""
_COLONS = ":\N{FULLWIDTH COLON}"
_AFTER = {"{": "\"'}", "[": "{[\"']-0123456789"}
"""After each bracket, what begins JSON; after `[` also one of `_WORDS`."""
_WORDS = ("true", "false", "null")
_WORD = re.compile(r"[A-Za-z0-9_]")
_LEAD = re.compile(r"#{1,6}|[-*>]|[0-9]{1,9}\.")
_CUT_LEAD = re.compile(r"[0-9]{1,9}\Z")
_RUNS = {
    BLANKS: re.compile(f"[{BLANKS}]*+"),
    "\t\r ": re.compile("[\t\r ]*+"),
    "_+-": re.compile("[A-Za-z0-9_+-]*+"),
}
"""By what a run may consist of; the third is the language of a fence."""
_LANGUAGE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-"
_MAX_INDENT, _LINE_CHARACTERS = 64, 12
_LIST_ITEM = re.compile(r"\n[\t\r ]*+(?:[-*+]|[0-9]{1,9}[.)])[\t ]")


class NotBlock(Exception):
    """No block begins at this position, whatever follows."""


class Undecided(Exception):
    """The text ends within what may become a block.

    `has_colon`: NAME and its colon are there. `more`: characters that leave the question open, as many as may come.
    """

    def __init__(self, more: str, *, has_colon: bool) -> None:
        super().__init__()
        self.more = more
        self.has_colon = has_colon


@dataclass(frozen=True, slots=True)
class Opener:
    """The beginning of a block. `json_at`: the position of its bracket.

    `closing`: what has to be closed behind it: the sign of bold that is open, if any, and whether a fence is.
    """

    name: str
    name_at: int
    json_at: int
    closing: tuple[str, bool]


class Before:
    """What stands before a position, as far as the grammar asks; of constant size."""

    def __init__(self) -> None:
        self.last = "\n"
        self.is_code = False
        """Whether a backtick stands directly before, or before the signs of bold that do."""
        self.list_indent = 0
        """Where the contents of the newest list item begin."""
        self._line = ""
        """The line so far: its blanks, but not much of what follows."""
        self._is_line_known = False
        """Whether the line is long enough to say that it is no list item, or which one."""

    @property
    def indent(self) -> int | None:
        """How many blanks the line so far consists of; None if there is something else."""
        return None if self._line.strip(BLANKS) else len(self._line)

    def advance(self, text: str) -> None:
        """Go behind a text."""
        if not text:
            return
        self.last = text[-1]
        if self.last not in "*_":
            self.is_code = self.last == "`"
        elif before_bold := text.rstrip("*_"):
            self.is_code = before_bold[-1] == "`"
        if self._is_line_known and "\n" not in text:
            return
        lines = f"\n{self._line}{text}"
        for item in _LIST_ITEM.finditer(lines):
            self.list_indent = len(item[0]) - 1
        line = lines[lines.rfind("\n") + 1 :]
        rest = line.lstrip(BLANKS)
        self._line = line[: min(len(line) - len(rest), _MAX_INDENT)] + rest[:_LINE_CHARACTERS]
        self._is_line_known = len(rest) >= _LINE_CHARACTERS

    def end_block(self) -> None:
        """Go behind a block, which is no part of the text."""
        self.advance("]")
        self.is_code = False


class Openers:
    """The grammar for these names."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = sorted(names, key=len, reverse=True)
        """The longest first, which counts where one begins with another."""
        firsts = "".join(sorted({name[0] for name in self._names}))
        # A search is quick where it begins with a set, so that each branch looks back at the character it begins with.
        self._candidate = re.compile(
            rf"""[#>0-9\-*_`{firsts}](?:
              (?<=[{firsts}])(?<![A-Za-z0-9_].)(?:{"|".join(f"(?<={each}){_rest(each, names)}" for each in firsts)})
            | (?<=\n[#>*0-9-])(?:\#*|[0-9]*\.?)(?:\Z|[ ][*_`]*(?:\Z|[{firsts}]))  # a lead
            | (?<=`)(?<!``)(?:`|\Z|[{firsts}])  # a fence, or NAME in backticks
            | (?<=[*])[*]{{0,2}}(?:[`{firsts}]|\Z) | (?<=_)(?:\Z|_(?:[`{firsts}]|\Z))
            )""",
            re.VERBOSE,
        )

    def next_candidate(self, text: str, start: int) -> int | None:
        """Return the next position where a block may begin. `text` has the character before `start`."""
        found = self._candidate.search(text, start)
        return None if found is None else found.start()

    def reading(self, text: str, start: int, before: Before) -> "Reading":
        """Begin to read at `start`."""
        return Reading(self._names, text, start, before)


def _rest(first: str, names: Collection[str]) -> str:
    """Return a pattern of what follows the first letter of names, or is cut at the end."""
    rests = {name[1:] for name in names if name.startswith(first)}
    if "" in rests:
        return ""
    return rf"(?:\Z|{'|'.join(each + _rest(each, rests) for each in sorted({rest[0] for rest in rests}))})"


class Reading:
    """Reads the beginning of a block at one position. `here`: how far it has come."""

    def __init__(self, names: list[str], text: str, start: int, before: Before) -> None:
        self.here = start
        self._names, self._text, self._before = names, text, before
        self._has_colon = False

    def opener(self) -> Opener:
        """Return the beginning of a block. Raises NotBlock and Undecided."""
        if self._before.is_code:
            raise NotBlock
        indent, found = self._before.indent, self._text[self.here : self.here + 3]
        may_be_fenced = indent is not None and indent <= max(3, self._before.list_indent)
        has_fence = may_be_fenced and "```".startswith(found) and self._fence()
        has_lead = not has_fence and self._lead()
        bold = self._bold()
        in_backticks = self._take("`")
        if not (has_fence or has_lead or bold or in_backticks) and _WORD.match(self._before.last):
            raise NotBlock
        name_at = self.here
        name = self._name()
        if in_backticks:
            self._has_colon = self._take(_COLONS)
            self._need("`")
        closing = self._bold()
        if not self._has_colon:
            gap = self._run(BLANKS)
            self._has_colon = self._take(_COLONS)
            is_alone = has_fence or has_lead or self._before.indent is not None
            is_decorated = in_backticks or has_lead or (bold and closing)
            if not self._has_colon and not (is_decorated and is_alone and gap.count("\n") == 1):
                raise NotBlock
        if self._has_colon:
            self._run(BLANKS)
            closing = self._bold() or closing
            self._run(BLANKS)
        has_fence = self._fence() or has_fence
        return Opener(name, name_at, self._json(), ("" if closing else bold[:1], has_fence))

    def _fence(self) -> bool:
        if self._next() != "`":
            return False
        for _ in range(3):
            self._need("`")
        self._run("_+-")
        self._run("\t\r ")
        self._need("\n")
        self._run(BLANKS)
        return True

    def _lead(self) -> bool:
        if self._before.last != "\n":
            return False
        found = _LEAD.match(self._text, self.here)
        if found is None or self._text[found.end() : found.end() + 1] not in {" ", ""}:
            if found is None and _CUT_LEAD.match(self._text, self.here):
                raise self._undecided()
            return False
        self.here = found.end()
        self._need(" ")
        return True

    def _bold(self) -> str:
        sign = self._next()
        if sign not in {"*", "_"}:
            return ""
        start = self.here
        while self.here < start + (3 if sign == "*" else 2) and self._take(sign):
            pass
        if sign == "_" and self.here < start + 2:
            raise NotBlock
        return self._text[start : self.here]

    def _name(self) -> str:
        for name in self._names:
            found = self._text[self.here : self.here + len(name)]
            if found == name:
                self.here += len(name)
                return name
            if len(found) < len(name) and name.startswith(found):
                raise self._undecided()
        raise NotBlock

    def _json(self) -> int:
        json_at, bracket = self.here, self._next()
        if bracket not in _AFTER:
            raise NotBlock
        self.here += 1
        self._run(BLANKS)
        if self._next() in _AFTER[bracket]:
            return json_at
        for word in _WORDS if bracket == "[" else ():
            found = self._text[self.here : self.here + len(word) + 1]
            if word.startswith(found):
                raise self._undecided()
            if found.startswith(word) and not _WORD.match(found[-1]):
                return json_at
        raise NotBlock

    def _undecided(self, more: str = "") -> Undecided:
        return Undecided(more, has_colon=self._has_colon)

    def _next(self) -> str:
        if self.here >= len(self._text):
            raise self._undecided()
        return self._text[self.here]

    def _take(self, characters: str) -> bool:
        found = self._next() in characters
        self.here += found
        return found

    def _need(self, character: str) -> None:
        if not self._take(character):
            raise NotBlock

    def _run(self, of: str) -> str:
        start = self.here
        found = _RUNS[of].match(self._text, start)
        self.here = found.end() if found else start
        if self.here == len(self._text):
            raise self._undecided(_LANGUAGE if of == "_+-" else of)
        return self._text[start : self.here]
