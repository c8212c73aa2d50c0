"""Key words of actions, and small rules about them. The parser and the answer stream share them."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Literal

from contracts.runs.decisions import ALIASES, FINAL_RESPONSE, RESERVED
from services.planner.replies.strict_json import ANSWER_KEYS

ActionFormat = Literal["auto", "unified", "legacy"]
"""`auto`: every form that is understood; `unified`: only the two-field form; `legacy`: only actions of five fields."""

STREAMED_KEYS = ANSWER_KEYS[:2]
"""The answer keys whose text is streamed. If an object has both, the first one is the answer."""
FINAL_FIELDS = ("confidence", "route", "requires_followup", "warnings", "language", "sources", "suggested_actions")
"""Fields of a final response beside its answer."""
CONTROL_KEYS = frozenset({"thought", "next_node", "args", "plan", "join", "steps", "action"})
"""Keys of an action. They are never fields of an answer."""
ALIAS_MODES = {"task.subagent": "subagent", "task.tool": "job"}
"""Alias of the opcode `task` -> the mode that it implies."""

LEAD = 64
"""Characters before an object or list that are examined: they may show that it is a value inside something."""

MAX_KEY_CHARACTERS = 40
"""Of a key or name of the model's, where a warning or complaint quotes it."""
MAX_NAME_CHARACTERS = 200
"""A longer name is not searched for a namespace."""

_RECIPIENT = re.compile(r"\bto=(\S+)")
_CHANNEL = re.compile(r"<\|.*", re.DOTALL)
_NUMBER = re.compile(r"(?:[:#@]\d+|\[\d+\])\Z")
_AROUND = " \t\r\n\"'`<>()/.,;"
_SEPARATOR = re.compile(r"::|[.:/]|__")
_JOINTS = str.maketrans("-.", "__")
_JOINED = re.compile(r"^(?:functions|tools?|default_api)_|_\d{1,2}\Z")
"""A namespace and a number, where a gateway has put `_` for what functions may not be named by."""
_NULL_WORDS = frozenset({"null", "none"})
_FINISHING = frozenset({FINAL_RESPONSE, "answer", "final", "final answer", "finish", "reply", "respond"})
_NAMING = re.compile(r"(?:next[ _-]?)?(?:node|step|tool|action|function)(?:[ _-]?name)?|recipient_name", re.IGNORECASE)
_QUOTES = r"\"'\\\u2018\u2019\u201c\u201d"
_ARGUMENT = re.compile(
    rf"(?:[{_QUOTES}]\s?[:=]"
    rf"|\b(?:args|arguments|kwargs|parameters?|params|tool_args|tool_input|action[ _]input)[*`{_QUOTES}]*\s?[:=]"
    r"|[(,]\s?\w{1,40}\s?=|\w\("
    r"|<(?:args|arguments|function|input|invoke|parameters?)\b[^<>]*>)[\s*`]*\Z",
    re.IGNORECASE,
)
_MAY_END_ARGUMENT = re.compile(r"[:=(>][\s*`]*\Z")
"""The end of every match of `_ARGUMENT`. Testing it first is much cheaper."""
_MAY_BE_OBJECT = re.compile(r"\s*\{")


def spelled(name: str, tools: AbstractSet[str]) -> str:
    """Return the tool, opcode or alias that a node's name means; without one of these the name, without padding.

    A tool with the exact name comes first, then an opcode in any case, then what a decorated name means.
    """
    name = name.strip()
    folded = name.lower()
    if name in tools or folded in RESERVED:
        return name if name in tools else folded
    return meant(name, tools) or meant(name, RESERVED) or name


def meant(name: str, known: AbstractSet[str]) -> str | None:
    """Return the one of the `known` names that a decorated name means; None where none or several may be meant.

    Decorations: a namespace (`functions.look`, `default_api:look`, `mcp__web__look`), a number (`look:0`), a channel
    (`look<|channel|>commentary`, `commentary to=functions.look`), brackets and quotes, another case, and the first two
    with `_` in place of punctuation (`functions_look_0`).
    """
    recipient = _RECIPIENT.search(name)
    bare = _NUMBER.sub("", _CHANNEL.sub("", recipient[1] if recipient else name).strip(_AROUND))
    by_folded: dict[str, list[str]] = {}
    for each in known:
        by_folded.setdefault(each.lower().translate(_JOINTS), []).append(each)
    starts = [0, *(separator.end() for separator in _SEPARATOR.finditer(bare[:MAX_NAME_CHARACTERS]))]
    folded = bare.lower().translate(_JOINTS)
    for each in (*(folded[start:] for start in starts), _JOINED.sub("", folded)):
        if same := by_folded.get(each):
            return same[0] if len(same) == 1 else None
    return None


def opcode_of(name: str, tools: AbstractSet[str] = frozenset()) -> str:
    """Return the opcode that a node's name means, else the name of the tool."""
    name = spelled(name, tools)
    return ALIASES.get(name, name)


def is_null_word(name: str, tools: AbstractSet[str] = frozenset()) -> bool:
    """Whether a node's name is the quoted word null. An action with such a name and an answer is a final response."""
    return name.strip().lower() in _NULL_WORDS and name.strip() not in tools


def may_be_encoded(text: str) -> bool:
    """Whether a text in place of an object may be that object, encoded as JSON.

    Only the whole text can show it, so such a text is not streamed.
    """
    return _MAY_BE_OBJECT.match(text) is not None


def lead_on(lead: str, more: str) -> str:
    """Return the last characters of `lead` followed by `more`. Each run of blanks counts as one blank."""
    if not more:
        return lead
    whole = lead + more
    words = whole.rsplit(None, LEAD)
    blank = " " if whole[-1:].isspace() else ""
    return (" ".join([words[0][-LEAD:], *words[1:]]) + blank)[-LEAD:] if words else blank


def is_argument(lead: str) -> bool:
    """Whether the text before an object or list shows that it is a value: of a key, a call or an element.

    Then it is a part of something that could not be read as a whole, and never an action.
    """
    return _MAY_END_ARGUMENT.search(lead) is not None and _ARGUMENT.search(lead) is not None


def names_another(fields: Mapping[str, Any]) -> bool:
    """Whether an object names something to call, in another notation. Then its answer is not for the user."""
    named = [
        value
        for key, value in fields.items()
        if isinstance(value, str) and value.strip() and _NAMING.fullmatch(key.strip())
    ]
    return any(name.strip().lower() not in _FINISHING for name in named)


def streams_before_plan(action: Mapping[str, Any]) -> bool:
    """Whether answer text was streamed before a plan in the same object arrived. Then the plan is ignored.

    True if `next_node` and `args` both precede `plan`, and `args` holds a text that is streamed. The caller has checked
    that the node is final.
    """
    keys = list(action)
    if not {"next_node", "args", "plan"} <= set(keys) or keys.index("plan") < max(
        keys.index("next_node"), keys.index("args")
    ):
        return False
    return bool(_streamed(action["args"]))


def _streamed(args: Any) -> str:
    if isinstance(args, str):
        return "" if may_be_encoded(args) else args
    if isinstance(args, list):
        odd = next((number for number, item in enumerate(args) if not isinstance(item, str)), len(args))
        return "\n".join(args[:odd])
    if isinstance(args, dict):
        first = next((args[key] for key in args if key in STREAMED_KEYS and args[key] is not None), None)
        return first if isinstance(first, str) else ""
    return ""
