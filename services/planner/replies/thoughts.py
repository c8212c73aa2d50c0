"""Thoughts in the text of a reply: the marks around them, and where they end. Pure; each character is read once.

- `MARKS` is the one table of marks, for all strategies, for texts that stream and for whole ones. Their case does not
  matter, blanks and attributes inside of tags neither.
- A thought stands before what the model says: in front of a text, or outside of the objects of an action. Marks that a
  text has further on are its own, but for a pair that is no part of a sentence: what the pair encloses is left out.
- Thoughts may be nested. Where fewer closing marks follow than were opened, the last one ends the thought.
- A closing mark without an opening one ends a thought that began with the reply: the templates of some models hold the
  opening mark. It is a word of the text inside of code or quotes, and in the middle of a sentence.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Mark(NamedTuple):
    """How one family of models marks its thoughts: two patterns, and who does so.

    `begins`: what the marks begin with, in lower case and without blanks. `unfinished`: a pattern of a mark whose
    beginning has come, and whose end may still come.
    """

    opening: str
    closing: str
    begins: tuple[str, ...]
    source: str
    unfinished: str = ""
    unopened: str = ""
    """The closing mark where no opening one precedes it. Empty: the same."""

    @property
    def is_nested(self) -> bool:
        """Whether a thought may hold another one. Channels follow each other."""
        return not self.unopened


def _tag(name: str, source: str) -> Mark:
    return Mark(
        rf"<\s?(?i:{name})(?:\s[^<>]{{0,80}})?>",
        rf"<\s?/\s?(?i:{name})\s?>",
        (),
        source,
        rf"<\s?/?\s?[\w:]{{0,40}}|<\s?(?i:{name})\s[^<>]{{0,80}}|<\s?/\s?(?i:{name})\s",
    )


def _words(opening: str, closing: str, source: str) -> Mark:
    begins = (opening.lower(), closing.lower())
    first, rest = re.escape(opening[0]), re.escape(opening[1:])
    return Mark(f"{first}(?i:{rest})", f"{re.escape(closing[0])}(?i:{re.escape(closing[1:])})", begins, source)


_FINAL = r"<\|channel\|>\s?(?i:final)\s?(?:<\|constrain\|>\s?\w{0,20}\s?)?<\|message\|>"
_THINKING = "think(?:ing)?|thoughts?|reasoning|reflection|scratchpad|cot|chain_of_thought"
MARKS = (
    _tag("think", "Qwen3, QwQ, DeepSeek-R1, MiniMax-M2, GLM-4.5, Hunyuan and most others"),
    _tag("thinking", "prompts of several frameworks"),
    _tag(
        r"(?:[a-z]{1,16}[:_]|ant)think(?:ing)?|think(?:ing)?[:_]\w{1,20}",
        "Seed-OSS (seed:think), LongCat (longcat_think), Claude (antThinking), Hunyuan (think:opensource)",
    ),
    _tag("thoughts?|(?:inner|internal)_(?:thoughts?|monologue)", "EXAONE Deep, prompts in the manner of MemGPT"),
    _tag("reasoning", "Reka Flash, prompts of several frameworks"),
    _tag("reflection|scratchpad|cot|chain_of_thought", "Reflection-Llama, Anthropic's prompts"),
    Mark(
        r"\[(?i:think(?:ing)?|reasoning)\]",
        r"\[/(?i:think(?:ing)?|reasoning)\]",
        (),
        "Magistral ([THINK]), and words alike in its brackets",
        r"\[/?[a-zA-Z_]{0,20}",
    ),
    Mark(
        rf"<\|(?i:(?:(?:begin|start)_(?:of_)?)?(?:{_THINKING})(?:_(?:start|begin))?)\|>",
        rf"<\|(?i:/\s?(?:{_THINKING})|end_(?:of_)?(?:{_THINKING})|(?:{_THINKING})_end)\|>",
        (),
        "OpenThinker, Sky-T1 (<|begin_of_thought|>), Command A Reasoning (<|START_THINKING|>), and tokens alike",
        r"<\|/?\s?\w{0,30}\|?",
    ),
    _words("◁think▷", "◁/think▷", "Kimi-VL"),
    _words("<|inner_prefix|>", "<|inner_suffix|>", "Apertus"),
    _words("<|channel>thought", "<channel|>", "Gemma 4"),
    _words("<unused94>thought", "<unused95>", "MedGemma"),
    Mark(
        r"<\|(?i:begin_of_solution|START_RESPONSE|begin_of_box)\|>",
        "",
        ("<|begin_of_solution|>", "<|start_response|>", "<|begin_of_box|>"),
        "OpenThinker, Command A, GLM-4.5V: what begins the answer behind a thought, read as an empty thought",
        unopened=r"(?!)",
    ),
    Mark(r"(?!)", r"(?<![a-zA-Z])assistantfinal", (), "harmony without its special tokens"),
    Mark(
        r"<\|channel\|>\s?(?i:analysis|commentary)(?:(?!to=)[^<]){0,60}<\|message\|>"
        r"|<\|start\|>(?i:assistant)(?!\s?to=)",
        rf"{_FINAL}|<\|end\|>",
        (
            *(f"<|channel|>{channel}" for channel in ("analysis", "commentary", "final")),
            "<|start|>assistant",
            "<|end|>",
        ),
        "harmony, the channels of gpt-oss",
        r"<\|channel\|>\s?(?i:analysis|commentary|final)(?:(?!<\|message\|>)[^{]){0,60}",
        rf"(?:<\|start\|>(?i:assistant))?{_FINAL}|<\|end\|>(?=\s*<\|start\|>)",
    ),
)
OPENING = "|".join(mark.opening for mark in MARKS)
CLOSING = "|".join(mark.unopened or mark.closing for mark in MARKS)
CHANNELS = "|".join(mark.unopened for mark in MARKS if mark.unopened)
MAX_MARK_CHARACTERS = 120
MAX_INDENTATION = 200
MAX_PARTS_OF_MARK = 4
"""A mark of harmony has up to so many `<`."""
FIRST_CHARACTERS = "<[◁"
MAX_TRIES = 16

_MARKS = re.compile(f"{OPENING}|{CLOSING}")
_OPENINGS = [re.compile(mark.opening) for mark in MARKS]
_BOTH = [re.compile(f"(?P<open>{mark.opening})|(?P<close>{mark.closing})") for mark in MARKS]
_OPENING = re.compile(OPENING)
_SAID = re.compile(r"\S")
_CODE = re.compile(r"```|`|\n")
_IN_TEXT = re.compile(rf"(?P<channel>{CHANNELS})|(?P<close>{CLOSING})|(?P<open>{OPENING})")
_CLOSING = re.compile(CLOSING)
_BLANKS = re.compile(r"\s+")
_WRAPPING = re.compile(r"<(answer|response)>")
"""What Hunyuan and ERNIE put around the answer behind a thought. Without a thought before it, it is text."""
_PREFIXES = frozenset(begin[:end] for mark in MARKS for begin in mark.begins for end in range(1, len(begin)))
_UNFINISHED = re.compile("|".join(mark.unfinished for mark in MARKS if mark.unfinished))
_QUOTES = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb"
_ENDS_SENTENCE = frozenset(".!?:;)…。！？\n")
_GOES_ON = frozenset(" \t,.;:!?)")


class Parted(NamedTuple):
    """A text without the thoughts before it.

    `start`: where the text begins. `thought`: None where there is none. `is_open`: a thought begins there and is never
    closed, so `text` is empty. `is_unopened`: the opening mark was left out.
    """

    text: str
    start: int = 0
    thought: str | None = None
    is_open: bool = False
    is_unopened: bool = False


def _indented(text: str, at: int) -> int:
    """Return where the line begins whose first character that is no blank is at `at`: its indentation is text."""
    return max(text.rfind("\n", 0, at) + 1, at - MAX_INDENTATION)


def apart(text: str, *, is_expected: bool = False) -> Parted:
    """Separate the thoughts before a text. `is_expected`: the model is known to leave the opening mark out."""
    begin = _said(text, 0)
    start, is_open = _behind(text, begin)
    unopened = start
    for mark in () if is_open else closing_marks(text, start):
        if not is_word(text, mark, in_sentence=not is_expected or unopened > begin):
            unopened = mark.end()
    end = start
    if unopened > start:
        end, is_open = _behind(text, _said(text, unopened))
    thought = said_in(text if is_open else text[begin:end])
    is_unopened = unopened > start == begin
    if is_open:
        return Parted("", end, thought, is_open, is_unopened)
    if end == begin:
        return Parted(text[_indented(text, begin) :], begin)
    wrapped = _WRAPPING.match(text, end)
    if wrapped is None:
        return Parted(text[end:], end, thought, is_open, is_unopened)
    end = _said(text, wrapped.end())
    closed = text.rstrip().removesuffix(f"</{wrapped[1]}>")
    body = closed.rstrip() if len(closed) < len(text.rstrip()) else text
    return Parted(body[end:], end, thought, is_open, is_unopened)


def without_later(text: str) -> str:
    """Leave out thoughts in the middle: the opening mark begins or ends a line, the closing one is alone on its own."""
    start, is_open = _behind(text, _said(text, 0))
    at, begin, kept, code = start, 0, list[str](), None
    for token in () if is_open else _OPENING.finditer(text, start):
        code, number = code or Code(text, start, goes_on=True), opens(text, token.start())
        if token.start() < at or number is None or not any(on_line(text, *token.span())) or token.start() in code:
            continue
        if (end := end_of(text, token.start(), number)) is None:
            break
        at, line = end, text[text.rfind("\n", 0, end) + 1 : end].strip()
        if re.fullmatch(MARKS[number].closing, line) and on_line(text, end, end)[1]:
            kept.append(text[begin : token.start()])
            begin = at = _said(text, end)
    return "".join([*kept, text[begin:]])


def _behind(text: str, start: int) -> tuple[int, bool]:
    """Return the end of the thoughts that are opened from `start` on, and whether one that begins there stays open."""
    while (number := opens(text, start)) is not None:
        end = end_of(text, start, number)
        if end is None:
            return start, True
        start = _said(text, end)
    return start, False


def opens(text: str, at: int) -> int | None:
    """Return the number of the mark that opens a thought here."""
    return next((number for number, each in enumerate(_OPENINGS) if each.match(text, at)), None)


def pass_marks(text: str, at: int, number: int, depth: int) -> tuple[int, int | None]:
    """Go behind the marks of a thought. Return where that is, and how many are open there; None: it is closed."""
    for mark in _BOTH[number].finditer(text, at):
        depth, at = depth + (1 if mark.lastgroup == "open" else -1), mark.end()
        if not depth or (mark.lastgroup == "close" and not MARKS[number].is_nested):
            return at, None
    return at, depth


def end_of(text: str, start: int, number: int) -> int | None:
    """Return the end of the thought that this mark opens; None: it is never closed."""
    depth, end = 0, None
    for mark in _BOTH[number].finditer(text, start):
        if mark.lastgroup == "open":
            depth += 1
            continue
        depth, end = depth - 1, mark.end()
        if not depth or not MARKS[number].is_nested:
            break
    return end


def closing_marks(text: str, start: int) -> Iterator[re.Match[str]]:
    """Yield the closing marks from `start` on that no opening mark precedes there, and that are not inside of code.

    A closing mark alone on its line closes more than a pair that is written in a sentence.
    """
    depth = 0
    code: Code | None = None
    for token in _IN_TEXT.finditer(text, start):
        code = code or Code(text, start)
        if token.start() in code:
            continue
        if token.lastgroup == "open":
            depth += 1
        elif depth and token.lastgroup == "close" and not all(on_line(text, *token.span())):
            depth -= 1
        else:
            depth = 0
            yield token


class Code:
    """The places of a text that are inside of code: a fence, or ticks on one line. `goes_on`: open code counts, too."""

    def __init__(self, text: str, start: int = 0, *, goes_on: bool = False) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        opened, at = "", start
        for token in _CODE.finditer(text, start):
            if token[0] == "\n":
                opened = "" if opened == "`" else opened
            elif not opened:
                opened, at = token[0], token.start()
            elif token[0] == opened:
                self._begins.append(at)
                self._ends.append(token.end())
                opened = ""
        if opened and goes_on:
            self._begins.append(at)
            self._ends.append(len(text))

    def __contains__(self, at: int) -> bool:
        number = bisect_right(self._begins, at)
        return number > 0 and at < self._ends[number - 1]


def on_line(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether a mark begins its line, which is not the first one, and whether it ends it."""
    before, after = text[max(0, start - 9) : start], text[end : end + 9]
    return before.rstrip(" \t").endswith("\n"), after.lstrip(" \t")[:1] in {"", "\n", "\r"}


def is_word(text: str, mark: re.Match[str], *, in_sentence: bool = True) -> bool:
    """Whether a closing mark is a word of the text: in quotes, or (`in_sentence`) in the middle of a sentence."""
    before, after = text[max(0, mark.start() - 2) : mark.start()], text[mark.end() : mark.end() + 1]
    if before and after and before[-1] in _QUOTES and after in _QUOTES:
        return True
    is_in_sentence = before[-1:] in {" ", "\t", "("} and before[0] not in _ENDS_SENTENCE and after in _GOES_ON
    return in_sentence and is_in_sentence


def said_in(text: str) -> str | None:
    """Return a thought without its marks."""
    return _MARKS.sub("\n", text).strip() or None


def _said(text: str, start: int) -> int:
    said = _SAID.search(text, start)
    return len(text) if said is None else said.start()


def unfinished_from(text: str) -> int:
    """Return where a mark may begin whose end is still to come; the length of the text where none may."""
    found = at = len(text)
    for _ in range(MAX_PARTS_OF_MARK):
        at = max(text.rfind(first, max(0, len(text) - MAX_MARK_CHARACTERS), at) for first in FIRST_CHARACTERS)
        if at < 0:
            break
        if _BLANKS.sub("", text[at:]).lower() in _PREFIXES or _UNFINISHED.fullmatch(text, at):
            found = at
    return found


class Head:
    """Leaves out blanks and thoughts before a text, part by part.

    `is_expected`: the model leaves the opening mark out, so all is held until the closing mark. `sure`: what the text
    begins with where it cannot be a thought.
    """

    def __init__(self, *, is_expected: bool = False, sure: str = "") -> None:
        self.begun = False
        """The text has begun: what follows is passed on as it is."""
        self._is_expected = is_expected
        self._sure = sure
        self._held = ""
        self._number: int | None = None
        """Of the mark that opened the thought that goes on."""
        self._depth = 0
        self._drafted: list[str] = []
        """What may be a thought whose opening mark was left out."""
        self._tries = 0
        self._may_be_closed = False
        self._has_thought = False
        self.is_wrapped = False
        """The answer stands in a tag of its own, whose end is no part of it."""

    def feed(self, text: str) -> str:
        """Return what follows the thoughts; empty while it has not begun."""
        if self.begun:
            return text
        text, self._held = self._held + text, ""
        if not self._drafted:
            text = self._behind_thoughts(text)
            if not text or self._held:
                return ""
        if self._is_expected and (self._drafted or text.lstrip()[:1] not in self._sure):
            text = self._behind_draft(text)
            text = self._behind_thoughts(text) if text else ""
        self.begun = bool(text) and not self._held
        return text if self.begun else ""

    def release(self) -> None:
        """Expect no thought, since the reasoning comes in a field of its own."""
        self._is_expected = self._is_expected and bool(self._drafted)

    def _behind_thoughts(self, text: str) -> str:
        at = 0
        while True:
            if self._number is not None:
                at, depth = pass_marks(text, at, self._number, self._depth)
                if depth is not None:
                    self._depth, self._held = depth, text[max(at, unfinished_from(text)) :]
                    return ""
                self._number, self._is_expected = None, False
            at = _said(text, at)
            self._number, self._depth = opens(text, at), 0
            self._has_thought = self._has_thought or self._number is not None
            if self._number is None:
                break
        if self._has_thought and (wrapped := _WRAPPING.match(text, at)) is not None:
            self._has_thought, self.is_wrapped = False, True
            at = _said(text, wrapped.end())
        text = text[at if self._has_thought or self.is_wrapped else _indented(text, at) :]
        if not text.strip() and not self._drafted:
            self._held = text
            return ""
        self._held = text if unfinished_from(text.lstrip()) == 0 else ""
        return text

    def _behind_draft(self, text: str) -> str:
        """Hold a draft until the mark that closes it. Many marks that do not are left to the end of the reply."""
        cut = unfinished_from(text)
        self._drafted.append(text[:cut])
        self._held = text[cut:]
        self._may_be_closed = self._may_be_closed or _CLOSING.search(text, 0, cut) is not None
        if not self._may_be_closed or self._tries >= MAX_TRIES or not text[:cut].strip():
            return ""
        self._tries += 1
        parted = apart("".join(self._drafted), is_expected=True)
        self._may_be_closed = parted.is_unopened
        if not parted.is_unopened or not (parted.text or parted.is_open):
            return ""
        text, self._held, self._has_thought = "".join(self._drafted)[parted.start :] + self._held, "", True
        self._drafted.clear()
        self._is_expected = False
        return text
