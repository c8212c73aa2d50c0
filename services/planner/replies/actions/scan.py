"""Finds the JSON objects in a reply, with prose, fences, thoughts and encodings around them; and broken objects.

Rules:
- Reading never goes back: a part of an object, whole or broken, is not searched again. So the work is linear, and no
  inner object of a truncated action is ever found.
- A brace or bracket that breaks before it has any content is prose, unless the brace has a key of an action further on.
  One that breaks later is broken: up to the balancing bracket, the next fence, or the end of the text.
- An object after a key, in a call or in an element (`"args": {`, `save({`, `<args>{`) is a value of something that was
  not read as a whole, so it is broken too.
- A brace or bracket that cannot begin anything is not tried. The number of tries is limited: a reply of a million
  objects holds no action.
- A closing mark of a thought outside of all objects ends a thought that began with the reply (`ThoughtEnds`): nothing
  before it counts. A mark alone on its line also ends something broken, in a text that does not begin with that.
- After a broken action nothing counts, since the intended first action is lost. Another fence may hold it again, unless
  the broken action may have been final, and so streamed already.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from services.planner.replies.actions.names import is_argument, lead_on
from services.planner.replies.strict_json import MAX_DEPTH, NotJson, Reader, well_formed_object
from services.planner.replies.thoughts import CHANNELS, CLOSING, OPENING, end_of, opens

MAX_ENCODINGS = 3
MAX_PIECES = 20_000
"""More than the answer stream examines, so it never streams an object that is not found here."""
_QUOTES = r"\"'`\u2018\u2019\u201c\u201d"
_BARE_KEY = rf"[{_QUOTES}]|[\w$.-]++[{_QUOTES}]?\s*+[:=]"
_COMMENT = r"//[^\n]*+|/\*(?>[^*]|\*(?!/))*+\*/"
_OBJECT = rf"\{{(?=\s*+(?:\}}|//|/\*|{_BARE_KEY}))"
_LIST = r"""\[(?=\s*+(?:[\[{\]"']|-?[0-9]|(?i:true|false|null|none)\b))"""
_ENCODED = r'"(?=(?>\s|\\+(?i:[nrt]))*+[\[{](?>\s|\\+(?i:[nrt]))*+\\)'
# Each alternative begins with its own character, and no flag applies to all, so prose is skipped at full speed.
_NOTABLE = re.compile(rf"{_OBJECT}|{_LIST}|```|{_ENCODED}|\{{(?P<odd>)|(?P<closing>{CLOSING})|(?P<opening>{OPENING})")
_CLOSING_LINE = re.compile(rf"^[ \t]*(?:{CLOSING})[ \t]*$|{CHANNELS}", re.MULTILINE)
_BARE_OPENING = re.compile(rf"(?>[\s\[{{]|{_COMMENT})*+")
_KEY_AT = re.compile(_BARE_KEY)
_IN_BROKEN = re.compile(r'"(?>[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{}\]]|```', re.DOTALL)
_NODE_BEGINS = rf"next_node[{_QUOTES}\\]*+\s*+[:=]?\s*+(?:[{_QUOTES}\\]*+\s*+\w|[\[{{]|[{_QUOTES}\\]*+\Z)"
_NODE = re.compile(rf"next_?node|next[ -]node[*{_QUOTES}\\]*+\s*+[:=]", re.IGNORECASE)
_NODE_WORD = "node"
_ARGUMENT_KEYS = "args|arguments|parameters|tool_args|tool_input"
_CALLING_KEY = (
    rf"[{_QUOTES}](?:{_ARGUMENT_KEYS}|tool|tool_calls|function_call|action|action_input|steps|plan)[{_QUOTES}\\]*+\s*+:"
)
# The number of quotes before a key is limited. Otherwise a long run of quotes would take quadratic time.
_OF_ACTION = rf"[*{_QUOTES}\\]{{0,8}}+(?P<node>{_NODE.pattern}|{_CALLING_KEY})"
_IN_ODD = re.compile(rf"{_OF_ACTION}|{_IN_BROKEN.pattern}", re.DOTALL | re.IGNORECASE)
_ARGUMENTS = rf"[{_QUOTES}](?:{_ARGUMENT_KEYS})[{_QUOTES}\\]*+\s*+[:=]\s*+[\[{{]?\s*+[{_QUOTES}\\]"
_REST_IS_BLANK = re.compile(r"\s*+\Z")
_WAS_ACTION = re.compile(rf"tool_calls|function_call|action_input|{_ARGUMENTS}|{_NODE_BEGINS}")
_MAY_BE_SHOWN = re.compile(r"final_response|null|none", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """An object of the reply.

    `start`, `end`: its position, or that of the list or text around it. `fenced`: it is inside a code fence.
    `doubted`: something broken comes before it. `lead`: the end of the text before it.
    """

    value: dict[str, Any]
    start: int
    end: int = 0
    fenced: bool = False
    doubted: bool = False
    lead: str = ""


@dataclass(frozen=True)
class Broken:
    """Something that begins like an object or list, but is invalid. `error.position` is a position in `text`.

    `was_action`: it was meant as an action.
    """

    error: NotJson
    text: str
    was_action: bool


@dataclass(frozen=True)
class ThoughtEnds:
    """All that was found before is a thought. `is_unopened`: the reply has no opening mark at all."""

    is_unopened: bool


Item = Found | Broken | ThoughtEnds
_Step = Generator[Item, None, int | None]
"""Yields what it finds, and returns the position to continue at; None: nothing more counts."""


class Scan:
    """One scan of a text.

    With `skip_thoughts` the content of thoughts is skipped, and `thoughts` says whether there was any.
    `characters_examined` counts each examination of a character. `first_fence`: position of the first code fence.
    `node`: position of the first mention of a node outside all objects. `cut`: the text ends where an object may begin.
    """

    def __init__(self, text: str, *, skip_thoughts: bool = True, level: int = 0) -> None:
        self.thoughts = False
        self.cut = False
        self.characters_examined = 0
        self.first_fence: int | None = None
        self.node: int | None = None
        self._text = text
        self._skip_thoughts = skip_thoughts
        self._level = level
        self._reader = Reader(text, lenient=True)
        self._tried = False
        self._fenced = False
        self._doubted = False
        self._pieces = 0
        self._unclosed: set[int] = set()
        self._has_closing_line = True
        self._lead = ""
        self._owners: set[int] = set()
        self._walked = 0

    def items(self) -> Iterator[Item]:
        """Yield valid and broken objects and the ends of thoughts, in the order of the text."""
        here: int | None = 0
        while here is not None and self._pieces < MAX_PIECES:
            notable = _NOTABLE.search(self._text, here)
            self._pass(here, notable.start() if notable else len(self._text))
            if notable is None:
                return
            begin = notable.start()
            if notable[0] == "```":
                here, self._fenced = begin + 3, not self._fenced
                if self.first_fence is None:
                    self.first_fence = begin
            elif notable["opening"] is not None:
                here = self._thought(notable)
            elif notable["closing"] is not None:
                here = notable.end()
                if self._skip_thoughts and not self._level:
                    self._fenced = self._doubted = False
                    self.node, self.first_fence, self._lead = None, None, ""
                    yield ThoughtEnds(is_unopened=not self.thoughts)
                    self.thoughts = True
            else:
                self._pieces += 1
                here = yield from (self._piece(begin) if notable["odd"] is None else self._odd(begin))

    def _pass(self, here: int, end: int) -> None:
        if here == end:
            return
        self.characters_examined += end - here
        prose = self._text[here:end]
        self._lead = lead_on(self._lead, prose)
        if self.node is None and _NODE_WORD in prose.lower() and (node := _NODE.search(prose)):
            self.node = here + node.start()

    def _piece(self, start: int) -> _Step:
        """Read something that begins like an object, a list or an encoded object."""
        lead, self._lead = self._lead, ""
        if is_argument(lead):
            error = NotJson("a value stands here without the object around it", start)
            return (yield from self._broken(start, error, was_action=True))
        if self._text[start] == '"':
            return (yield from self._encoded(start, lead))
        return (yield from self._value(start, lead))

    def _odd(self, start: int) -> _Step:
        """Pass a brace that begins no object. With a key of an action it was meant as one; otherwise it is prose."""
        if start >= self._walked:
            self._walk(start)
        if start in self._owners:
            return (
                yield from self._broken(start, NotJson("a key in quotes is expected", start + 1, 1), was_action=True)
            )
        self._lead = lead_on(self._lead, "{")
        self.cut = _REST_IS_BLANK.match(self._text, start + 1) is not None
        return start + 1

    def _walk(self, start: int) -> None:
        """Find the braces that directly hold a key of an action, from the one at `start` to its closing brace."""
        opened: list[int] = []
        for token in _IN_ODD.finditer(self._text, start):
            self._walked = token.end()
            if token["node"]:
                self._owners.update(opened[-1:])
            elif token[0] in "{[":
                opened.append(token.start())
            elif token[0] in "}]":
                opened.pop()
                if not opened:
                    break
        else:
            self._walked = len(self._text)
        self.characters_examined += self._walked - start

    def _thought(self, mark: re.Match[str]) -> int:
        """Skip a thought. One that is never closed is prose."""
        number = opens(self._text, mark.start())
        if not self._skip_thoughts or number is None or number in self._unclosed:
            return mark.end()
        end = end_of(self._text, mark.start(), number)
        self.characters_examined += (end or len(self._text)) - mark.end()
        if end is None:
            self._unclosed.add(number)
            return mark.end()
        self.thoughts = True
        self._lead = ""
        return end

    def _value(self, start: int, lead: str) -> _Step:
        quickly = None
        if not self._tried and self._text[start] == "{":  # The rest may be one well-formed object.
            self._tried = True
            quickly = well_formed_object(self._text, start)
            self.characters_examined += 0 if quickly else len(self._text) - start
        try:
            value, end = quickly or self._reader.read(start)
        except NotJson as error:
            if self._is_prose(start, error):
                end = max(error.position, start + 1)
                self.cut = end >= len(self._text)
                self._lead = lead
                self._pass(start, end)
                return end
            return (yield from self._broken(start, error))
        self.characters_examined += end - start
        for item in _objects(value):
            yield Found(item, start, end, self._fenced, self._doubted, lead)
        return end

    def _is_prose(self, start: int, error: NotJson) -> bool:
        """Whether it broke before it had any content. A key without quotes is content."""
        text, position = self._text, error.position
        opening = _BARE_OPENING.match(text, start, position)
        if error.depth >= MAX_DEPTH or opening is None or opening.end() < position:
            return False
        return not (opening[0].rstrip().endswith("{") and _KEY_AT.match(text, position))

    def _broken(self, start: int, error: NotJson, *, was_action: bool = False) -> _Step:
        end = self._end_of_broken(error.position, error.depth)
        self.characters_examined += end - start
        if (thought_end := self._closing_line(start)) is not None:
            yield Broken(error, self._text, was_action=False)
            return thought_end
        region = self._text[start:end]
        was_action = was_action or _WAS_ACTION.search(region) is not None
        yield Broken(error, self._text, was_action)
        if not was_action:
            self._doubted = True
            return end
        fence = -1 if _MAY_BE_SHOWN.search(region) else self._text.find("```", end)
        self.characters_examined += max(0, fence - end)
        return fence if fence >= 0 else None

    def _closing_line(self, start: int) -> int | None:
        """Return where a mark alone on its line closes the thought that something broken belongs to."""
        if not self._has_closing_line or self._level or not self._skip_thoughts or not self._text[:start].strip():
            return None
        mark = _CLOSING_LINE.search(self._text, start)
        self.characters_examined += (mark.end() if mark else len(self._text)) - start
        self._has_closing_line = mark is not None
        return mark.start() if mark else None

    def _end_of_broken(self, here: int, depth: int) -> int:
        """Return where the brackets open at `here` are closed, the next fence begins, or the text ends."""
        for token in _IN_BROKEN.finditer(self._text, here):
            if token[0] == "```":
                return token.start()
            if token[0] in "{[":
                depth += 1
            elif token[0] in "}]":
                depth -= 1
            if not depth:
                return token.end()
        return len(self._text)

    def _encoded(self, start: int, lead: str) -> _Step:
        """Read a JSON string that holds an object."""
        try:
            inner, end = self._reader.read_string(start)
        except NotJson as error:
            self.characters_examined += error.position - start
            yield Broken(error, self._text, _WAS_ACTION.search(self._text, start) is not None)
            return None
        self.characters_examined += end - start
        if self._level >= MAX_ENCODINGS:
            return end
        scan = Scan(inner, skip_thoughts=self._skip_thoughts, level=self._level + 1)
        for item in scan.items():
            if isinstance(item, Found):
                yield Found(item.value, start, end, self._fenced, self._doubted or item.doubted, lead)
            elif isinstance(item, Broken):
                yield item
                end = -1 if item.was_action else end
        self.characters_examined += scan.characters_examined
        if self.node is None and scan.node is not None:
            self.node = start
        return end if end >= 0 else None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the value if it is an object, or the objects in it if it is a list, nested lists included."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
        elif isinstance(item, list):
            waiting += reversed(item)
