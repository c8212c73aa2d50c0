"""Finds the objects in what a model wrote: prose, fences, think tags and encodings around them, and objects that broke.

Rules:
- Reading never goes back: what was read as part of an object, whole or broken, is not searched again. So the work is
  linear, and no inner object of a truncated action is ever found.
- A brace or bracket that breaks before anything was said in it is prose, unless a brace has a key of an action further
  on. One that breaks later is broken up to where its brackets balance, a fence begins, or the text ends.
- What stands behind a key, in a call or in an element (`"args": {`, `save({`, `<args>{`) is a value of something that
  was not read as a whole, and so is broken too.
- A brace or bracket that cannot begin anything is not even tried, and only so many are tried: a reply of a million
  objects is none.
- Behind a broken action nothing counts, for what was meant to come first is lost; only another fence may hold it again,
  unless the broken one may have been final and so already shown.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from services.planner.replies.actions.fast_path import well_formed_object
from services.planner.replies.actions.names import THINK_TAGS, is_argument, lead_on
from services.planner.replies.strict_json import MAX_DEPTH, NotJson, Reader

MAX_ENCODINGS = 3
MAX_PIECES = 20_000
"""More than the answer stream looks at, so that nothing is shown of what is not found in the end."""
_NAMES = "|".join(THINK_TAGS)
_QUOTES = r"\"'`\u2018\u2019\u201c\u201d"
_BARE_KEY = rf"[{_QUOTES}]|[\w$.-]++[{_QUOTES}]?\s*+[:=]"
_COMMENT = r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/"
_OBJECT = rf"\{{(?=\s*+(?:\}}|//|/\*|{_BARE_KEY}))"
_LIST = r"""\[(?=\s*+(?:[\[{\]"']|-?[0-9]|(?i:true|false|null|none)\b))"""
_ENCODED = r'"(?=(?:\s|\\+(?i:[nrt]))*+[\[{](?:\s|\\+(?i:[nrt]))*+\\)'
# Each alternative begins with a character of its own and no flag holds for all: so prose is passed over at full speed.
_NOTABLE = re.compile(rf"{_OBJECT}|{_LIST}|```|{_ENCODED}|<(?P<tag>(?i:{_NAMES}))>|\{{(?P<odd>)")
_BARE_OPENING = re.compile(rf"(?:[\s\[{{]|{_COMMENT})*+")
_KEY_AT = re.compile(_BARE_KEY)
_IN_BROKEN = re.compile(r'"(?>[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{}\]]|```', re.DOTALL)
_NODE_BEGINS = rf"next_node[{_QUOTES}\\]*+\s*+[:=]?\s*+(?:[{_QUOTES}\\]*+\s*+\w|[\[{{]|[{_QUOTES}\\]*+\Z)"
_NODE = re.compile(rf"next_?node|next[ -]node[*{_QUOTES}\\]*+\s*+[:=]", re.IGNORECASE)
_NODE_WORD = "node"
_ARGUMENT_KEYS = "args|arguments|parameters|tool_args|tool_input"
_CALLING_KEY = (
    rf"[{_QUOTES}](?:{_ARGUMENT_KEYS}|tool|tool_calls|function_call|action|action_input|steps|plan)[{_QUOTES}\\]*+\s*+:"
)
# Only so many quotes in front of a key: with a run of any length, each character of a long one would be looked at from
# all before it.
_OF_ACTION = rf"[*{_QUOTES}\\]{{0,8}}+(?P<node>{_NODE.pattern}|{_CALLING_KEY})"
_IN_ODD = re.compile(rf"{_OF_ACTION}|{_IN_BROKEN.pattern}", re.DOTALL | re.IGNORECASE)
_ARGUMENTS = rf"[{_QUOTES}](?:{_ARGUMENT_KEYS})[{_QUOTES}\\]*+\s*+[:=]\s*+[\[{{]?\s*+[{_QUOTES}\\]"
_REST_IS_BLANK = re.compile(r"\s*+\Z")
_WAS_ACTION = re.compile(rf"tool_calls|function_call|action_input|{_ARGUMENTS}|{_NODE_BEGINS}")
_MAY_BE_SHOWN = re.compile(r"final_response|null|none", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """An object of the reply.

    `start` and `end` are those of the list or text around it, where there is one. `fenced`: it stands inside a code
    fence. `doubted`: something broken stands before it. `lead` is the end of the text in front of it.
    """

    value: dict[str, Any]
    start: int
    end: int = 0
    fenced: bool = False
    doubted: bool = False
    lead: str = ""


@dataclass(frozen=True)
class Broken:
    """Something that began as an object or list and is none; `error.position` is one in `text`.

    `was_action`: it was to call something.
    """

    error: NotJson
    text: str
    was_action: bool


_Step = Generator[Found | Broken, None, int | None]
"""Yields what it found and returns where to go on, None for nowhere."""


class Scan:
    """One reading of a text.

    With `skip_thoughts` the content of think tags is passed over, and `thoughts` tells whether there was any.

    `characters_examined` counts a character each time that it is examined; `first_fence` is where the first code fence
    begins; `node` is where a node is first spoken of outside of all objects; `cut`: the text ends where an object was
    about to begin.
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
        self._unclosed: set[str] = set()
        self._lead = ""
        self._owners: set[int] = set()
        self._walked = 0

    def items(self) -> Iterator[Found | Broken]:
        """The objects and the broken ones, in the order of the text."""
        here: int | None = 0
        while here is not None and self._pieces < MAX_PIECES:
            notable = _NOTABLE.search(self._text, here)
            self._pass(here, notable.start() if notable else len(self._text))
            if notable is None:
                return
            begin = notable.start()
            if notable[0] == "```":
                here = self._fence(begin)
            elif notable[0].startswith("<"):
                here = self._thought(notable)
            else:
                self._pieces += 1
                here = yield from (self._piece(begin) if notable["odd"] is None else self._odd(begin))

    def _pass(self, here: int, end: int) -> None:
        """Take in the prose up to `end`."""
        if here == end:
            return
        self.characters_examined += end - here
        prose = self._text[here:end]
        self._lead = lead_on(self._lead, prose)
        if self.node is None and _NODE_WORD in prose.lower() and (node := _NODE.search(prose)):
            self.node = here + node.start()

    def _piece(self, start: int) -> _Step:
        """Read what begins like an object, a list or an encoded object."""
        lead, self._lead = self._lead, ""
        if is_argument(lead):
            error = NotJson("a value stands here without the object around it", start)
            return (yield from self._broken(start, error, was_action=True))
        if self._text[start] == '"':
            return (yield from self._encoded(start, lead))
        return (yield from self._value(start, lead))

    def _odd(self, start: int) -> _Step:
        """A brace that begins no object. With a key of an action of its own it was to be one; else it is prose."""
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
        """Find the braces that have a key of an action of their own, from the one at `start` to where it is closed."""
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

    def _fence(self, start: int) -> int:
        self._fenced = not self._fenced
        if self.first_fence is None:
            self.first_fence = start
        return start + 3

    def _thought(self, tag: re.Match[str]) -> int:
        """Pass over a closed think element; a tag that is never closed is prose."""
        name = tag["tag"].lower()
        if not self._skip_thoughts or name in self._unclosed:
            return tag.end()
        closing = re.compile(f"</{name}>", re.IGNORECASE).search(self._text, tag.end())
        self.characters_examined += (closing.end() if closing else len(self._text)) - tag.end()
        if closing is None:
            self._unclosed.add(name)
            return tag.end()
        self.thoughts = True
        self._lead = ""
        return closing.end()

    def _value(self, start: int, lead: str) -> _Step:
        try:
            value, end = self._quickly(start) or self._reader.read(start)
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

    def _quickly(self, start: int) -> tuple[Any, int] | None:
        """Try once whether all the rest is one honest object."""
        if self._tried or self._text[start] != "{":
            return None
        self._tried = True
        read = well_formed_object(self._text, start)
        self.characters_examined += 0 if read else len(self._text) - start
        return read

    def _is_prose(self, start: int, error: NotJson) -> bool:
        """Did it break before anything was said? A key without quotes is something said."""
        text, position = self._text, error.position
        opening = _BARE_OPENING.match(text, start, position)
        if error.depth >= MAX_DEPTH or opening is None or opening.end() < position:
            return False
        return not (opening[0].rstrip().endswith("{") and _KEY_AT.match(text, position))

    def _broken(self, start: int, error: NotJson, *, was_action: bool = False) -> _Step:
        end = self._end_of_broken(error.position, error.depth)
        self.characters_examined += end - start
        region = self._text[start:end]
        was_action = was_action or _WAS_ACTION.search(region) is not None
        yield Broken(error, self._text, was_action)
        if not was_action:
            self._doubted = True
            return end
        fence = -1 if _MAY_BE_SHOWN.search(region) else self._text.find("```", end)
        self.characters_examined += max(0, fence - end)
        return fence if fence >= 0 else None

    def _end_of_broken(self, here: int, depth: int) -> int:
        """Where the brackets that are open at `here` are closed, a fence begins, or the text ends."""
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
        """A JSON string that holds an object."""
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
            else:
                yield item
                end = -1 if item.was_action else end
        self.characters_examined += scan.characters_examined
        if self.node is None and scan.node is not None:
            self.node = start
        return end if end >= 0 else None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects that a value is or lists, lists in lists included."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
        elif isinstance(item, list):
            waiting += reversed(item)
