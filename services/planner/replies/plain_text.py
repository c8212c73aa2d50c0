"""Reads replies that are plain text: as a whole, and while they stream. Pure; each character is read once.

Where the protocol says that a text is the answer, it is the answer as it was written: braces, JSON, code, LaTeX and
marks of thoughts in sentences or in code are parts of it. Left out are the thoughts before it, and the marks with which
templates end a turn. A text may still be an action (`begins_action`) or a call in another notation; then nothing of it
is shown.
"""

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from services.planner.replies import notations, thoughts
from services.planner.replies.actions.normalize import Normalized, normalize_action
from services.planner.replies.answer_stream.stream import ObjectStream

_KEYS = frozenset(
    {
        *("next_node", "args", "thought", "plan", "join", "steps", "action", "action_input", "tool", "tool_args"),
        *("tool_calls", "function_call", "function", "name", "arguments", "parameters", "answer", "raw_answer"),
    }
)
"""First keys of what may be an action."""
PLAN_KEYS = _KEYS | {"type", "reasoning", "calls", "content", "tool_name"}
MAX_BEGINNING_CHARACTERS = 300
MAX_ANNOUNCEMENT_CHARACTERS = 80
MAX_DOUBTS = 64
"""Marks in a streaming text that are examined. What follows is left to the end of the reply."""
_WORD = re.compile(r"[^\W\d_]{2}")
_ANSWER = r"(?:raw_)?answer\b|final"
_FENCE = re.compile(r"\ufeff?\s*(?:`{1,2}\Z|```[\w+-]{0,20}\s*)?")
_WRAPPED = re.compile(r"(?:[\s\[\"\\]|(?<=[\"\\])[nrt]|\{(?=\{))*")
_KEY = re.compile(r"\{\s*([\"'\u201c]?)([\w\\]{0,60})([\"'\u201d]?)\s*(.?)", re.DOTALL)
_FENCE_ENDS = re.compile(r"```[\w+-]{0,20}\s{0,20}\Z")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]{0,60}(\(?)")
_FRAGMENTS = ("next_node", "args", "arguments", "tool_args", "action_input", "tool_calls", "function_call", "steps")
"""Keys that belong to an action even where its beginning is missing."""
_FRAGMENT = re.compile(rf"\"?(?:{'|'.join(_FRAGMENTS)})\"\s*:")
_OBJECT = re.compile(
    rf"\{{\s*[\"'](?:{'|'.join(sorted(_KEYS - {'answer', 'raw_answer'}))})[\"']\s*:|{_FRAGMENT.pattern}"
)
_STOPS = re.compile(
    rf"(?P<open>{thoughts.OPENING})|(?P<close>{thoughts.CLOSING})"
    rf"|(?P<call>(?i:{notations.BEGINS})|{notations.LINE_BEGINS})"
    rf"|(?P<function>\(\s{{0,4}}\{{)|(?P<member>\"\s{{0,4}}:\s{{0,4}}\{{)"
    rf"|(?P<token>{notations.END_TOKENS})|(?P<wrapping></(?:answer|response)>)|(?P<object>{_OBJECT.pattern})",
    re.MULTILINE,
)
_MAY_STOP = re.compile(r"[<\[◁{(\"]|^A", re.MULTILINE)
_UNFINISHED = re.compile(
    r"(?:<[^\s<>]{0,40}|\[[A-Z_/]{0,12}|\(\s{0,4}|(?:\{\s{0,8}[\"']?|\")\w{0,16}[\"']?\s{0,8}|\"\s{0,4}:\s{0,4}"
    r"|^A[ction:]{0,6}[ \t]{0,8})\Z",
    re.MULTILINE,
)
_END = re.compile(rf"(?:(?:{notations.END_TOKENS})\s*)+\Z")
_ENDS_SENTENCE = frozenset(".!?:…。！？")


class Plain(NamedTuple):
    """What a text comes to.

    `text`: the answer; empty where there is none. `thought`: what precedes it. `is_unopened`: without its opening mark.
    `written`: calls in another notation. `action`: the text may be an action, be it after an announcement.
    """

    text: str
    thought: str | None = None
    is_unopened: bool = False
    written: notations.Written | None = None
    action: str = ""


def read_plain(text: str, tools: AbstractSet[str] = frozenset(), *, is_expected: bool = False) -> Plain:
    """Read a whole text. `is_expected`: the model is known to leave out the marks that open its thoughts."""
    text = text if is_expected else thoughts.without_later(text)
    parted = thoughts.apart(text, is_expected=is_expected)
    body = text[parted.start :]
    if (written := notations.find(body, tools)) is not None:
        return Plain("", parted.thought, parted.is_unopened, written)
    action = body if begins_action(body) or _announces_object(body) else ""
    return Plain(without_end(parted.text), parted.thought, parted.is_unopened, None, action)


def answer_in(plain: Plain, tools: AbstractSet[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the arguments of an answer whose text was asked for alone, with warnings; none where it is no answer."""
    if plain.action:
        normalized = normalize_action(plain.action, tools=tools)
        if is_action(plain.action, normalized):
            args = normalized.action.args if normalized.action and normalized.action.is_terminal else {}
            return args, normalized.warnings if args else ()
    return {"answer": plain.text}, ()


def is_action(text: str, normalized: Normalized) -> bool:
    """Whether a text that may be an action, at first sight, is one as a whole."""
    action = normalized.action
    if action is None:  # A broken object in prose is one by its keys: `"body": {"name": "x"}` is said of a request.
        is_broken = normalized.error == "unparseable" and (begins_action(text) or _FRAGMENT.search(text) is not None)
        return normalized.was_action and (is_broken or "next_node" in text)
    if not begins_action(text) and _WORD.search(text, max(text.rfind("}"), text.rfind("]"))):
        return False
    if action.opcode is None or "next_node" in text:
        return True
    return bool(action.args.get("steps")) if not action.is_terminal else re.search(_ANSWER, text) is not None


def without_end(text: str) -> str:
    """Return a text without the marks that end a turn. `</s>` after `<s>` is HTML."""
    end = _END.search(text, max(0, len(text) - MAX_BEGINNING_CHARACTERS))
    return text if end is None or (end[0].startswith("</s>") and "<s>" in text) else text[: end.start()]


def begins_action(text: str, keys: AbstractSet[str] = _KEYS) -> bool | None:
    """Whether a text begins like an action, in a fence or not. None: only more of it can show that."""
    text = text.lstrip()
    if "Thought:".startswith(text[:8]) or text.startswith("Action:"):
        return True if len(text) >= len("Action:") else None
    text = text[:MAX_BEGINNING_CHARACTERS]
    fence = _FENCE.match(text)
    wrapped = _WRAPPED.match(text, fence.end() if fence else 0)
    around, body = (wrapped[0], text[wrapped.end() :]) if wrapped else ("", text)
    is_list, is_text = "[" in around, '"' in around
    if is_text:
        body = body.replace("\\", "")
    if not body:
        return None if len(text) < MAX_BEGINNING_CHARACTERS else False
    if is_list and (function := _FUNCTION.match(body)):
        return bool(function[1]) or (None if function.end() == len(body) else False)
    key = _KEY.match(body)
    if key is None:
        return False
    if not key[4]:
        return None
    return key[2].replace("\\", "") in keys and (bool(key[3]) or key[4] == ":" or is_text)


def _announces_object(text: str) -> bool:
    """Whether some prose and an object that may be an action are the whole text."""
    found = _OBJECT.search(text, 0, 2 * notations.MAX_LEAD_IN_CHARACTERS)
    if found is None or found.start() > notations.MAX_LEAD_IN_CHARACTERS:
        return False
    return _is_bare(text, found.start(), thoughts.Code(text))


def _is_bare(text: str, at: int, code: thoughts.Code) -> bool:
    """Whether an object is not inside of code, or is what a fence begins with."""
    return at not in code or _FENCE_ENDS.search(text, max(0, at - MAX_BEGINNING_CHARACTERS), at) is not None


class TextStream:
    """Streams a text from its first character on, part by part.

    Held back is what may still be a thought, an action (which `action` streams) or a call in another notation.
    `may_announce`: native calls may follow, so a short first sentence waits for what comes behind it.
    """

    def __init__(
        self,
        action: ObjectStream,
        begins: Callable[[str], bool | None] = begins_action,
        *,
        is_expected: bool = False,
        may_announce: bool = False,
    ) -> None:
        self.head = thoughts.Head(is_expected=is_expected)
        self._action = action
        self._begins = begins
        self._may_announce = may_announce
        self._is_action: bool | None = None
        self._is_over = False
        self._held = ""
        self._shown: list[str] = []
        self._doubts = 0

    @property
    def shown(self) -> str:
        """The text returned so far."""
        return self._action.shown if self._is_action else "".join(self._shown)

    def feed(self, text: str) -> str:
        """Read the next part of the reply, and return the text to stream now."""
        if self._is_action:
            return self._action.feed(text)
        text = text if self.head.begun else self.head.feed(text)
        if self._is_over or not text:
            return ""
        text, self._held = self._held + text, ""
        if self._is_action is None:
            self._is_action = self._begins(text)
            if self._is_action is None:
                self._held = text
                return ""
            if self._is_action:
                return self._action.feed(text)
        if _MAY_STOP.search(text) is not None:
            text = self._certain(text)
        if self.head.is_wrapped:  # Blanks before the closing tag are no part of the answer.
            said = text.rstrip()
            text, self._held = said, text[len(said) :] + self._held
        # A short first sentence may announce native calls.
        is_short = len(text) <= MAX_ANNOUNCEMENT_CHARACTERS and text.rstrip()[-1:] in _ENDS_SENTENCE
        if self._may_announce and not self._shown and is_short and not self._is_over:
            self._held = text + self._held
            return ""
        if text:
            self._shown.append(text)
        return text

    def _certain(self, text: str) -> str:
        """Return the beginning of a text that is certain to be a part of the answer. The rest waits, or is over."""
        for stop in _STOPS.finditer(text):
            if stop.lastgroup == "wrapping" and not self.head.is_wrapped:
                continue
            self._doubts += 1
            before = "".join(self._shown)
            whole, offset = before + text, len(before)
            if stop.lastgroup in {"open", "close"} and stop.end() == len(text) and self._doubts <= MAX_DOUBTS:
                self._held = text[stop.start() :]
                return text[: stop.start()]
            at = offset + stop.start()
            if stop.lastgroup == "open" and not any(thoughts.on_line(whole, at, offset + stop.end())):
                continue  # It is written in a sentence.
            if self._doubts > MAX_DOUBTS or not self._is_text(whole, at, str(stop.lastgroup)):
                self._is_over = True
                return text[: stop.start()]
        unfinished = _UNFINISHED.search(text, max(0, len(text) - thoughts.MAX_MARK_CHARACTERS))
        cut = min(thoughts.unfinished_from(text), unfinished.start() if unfinished else len(text))
        self._held = text[cut:]
        return text[:cut]

    @staticmethod
    def _is_text(text: str, at: int, kind: str) -> bool:
        """Whether a mark is a part of the text, and nothing that begins or ends there."""
        code = thoughts.Code(text, goes_on=True)
        if kind == "object":
            return at > notations.MAX_LEAD_IN_CHARACTERS or not _is_bare(text, at, code)
        if at in code or (kind == "member" and text.lstrip()[:1] in {"{", "["}):
            return True
        if kind == "close":
            marks = (mark for mark in thoughts.closing_marks(text, 0) if mark.start() == at)
            return all(thoughts.is_word(text, mark) for mark in marks)
        return False
