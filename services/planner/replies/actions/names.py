"""The words of the planner's language and the small rules about them that the parser and the answer stream share."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Literal

from contracts.actions import ALIASES, FINAL_RESPONSE, RESERVED
from services.planner.replies.strict_json import ANSWER_KEYS

ActionFormat = Literal["auto", "unified", "legacy"]
"""`auto`: everything that normalises; `unified`: the two-field form and nothing else; `legacy`: actions of five fields
alone."""

STREAMED_KEYS = ANSWER_KEYS[:2]
"""The answer keys whose text is shown while it arrives; of both, the one that comes first is the answer."""
FINAL_FIELDS = ("confidence", "route", "requires_followup", "warnings", "language", "sources", "suggested_actions")
"""What a final response may hold beside its answer."""
CONTROL_KEYS = frozenset({"thought", "next_node", "args", "plan", "join", "steps", "action"})
"""Keys of the wrapper, which are never fields of an answer."""
THINK_TAGS = ("think", "thinking", "thought", "reasoning")
"""Elements, in any case, whose content is a draft: an object in it counts only where there is none outside."""
ALIAS_MODES = {"task.subagent": "subagent", "task.tool": "job"}
"""The mode of a task that its opcode's spelling names."""

LEAD = 64
"""Characters in front of an object or list that may tell that it is a value inside of something."""

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
"""What every lead of an argument ends with: to look for it first is much cheaper."""
_MAY_BE_OBJECT = re.compile(r"\s*\{")


def spelled(name: str, tools: AbstractSet[str]) -> str:
    """A node's name without padding; an opcode or alias in its own spelling, unless a tool has exactly the name that was written."""
    name = name.strip()
    folded = name.lower()
    return folded if folded in RESERVED and name not in tools else name


def opcode_of(name: str, tools: AbstractSet[str] = frozenset()) -> str:
    """The opcode that a node's name means, else the name of the tool."""
    name = spelled(name, tools)
    return ALIASES.get(name, name)


def is_null_word(name: str, tools: AbstractSet[str] = frozenset()) -> bool:
    """Is it the quoted word null? With an answer beside it that is a final response."""
    return name.strip().lower() in _NULL_WORDS and name.strip() not in tools


def may_be_encoded(text: str) -> bool:
    """Can a text in the place of an object be that object, encoded once more?

    Only the whole text tells, so it is not shown early.
    """
    return _MAY_BE_OBJECT.match(text) is not None


def lead_on(lead: str, more: str) -> str:
    """The end of a text that goes on with `more`: its last characters, blanks in a row as one."""
    if not more:
        return lead
    whole = lead + more
    words = whole.rsplit(None, LEAD)
    blank = " " if whole[-1:].isspace() else ""
    return (" ".join([words[0][-LEAD:], *words[1:]]) + blank)[-LEAD:] if words else blank


def is_argument(lead: str) -> bool:
    """Does the text in front of an object or list say that it is a value inside of something: of a key, of a call, of an element?

    Then it is a piece of what could not be read as a whole, and never an action.
    """
    return _MAY_END_ARGUMENT.search(lead) is not None and _ARGUMENT.search(lead) is not None


def names_another(fields: Mapping[str, Any]) -> bool:
    """Does an object name what is to be called, under a key of another notation? Then its answer is not the user's."""
    named = [
        value
        for key, value in fields.items()
        if isinstance(value, str) and value.strip() and _NAMING.fullmatch(key.strip())
    ]
    return any(name.strip().lower() not in _FINISHING for name in named)


def streams_before_plan(action: Mapping[str, Any]) -> bool:
    """Was text of the answer shown before a plan in the same object came?

    Then the answer stands and the plan is ignored.

    True when `next_node` and `args` both precede `plan` and `args` holds a text that is shown while it arrives. The
    caller knows that the node is final.
    """
    keys = list(action)
    if not {"next_node", "args", "plan"} <= set(keys) or keys.index("plan") < max(
        keys.index("next_node"), keys.index("args")
    ):
        return False
    return bool(_streamed(action["args"]))


def _streamed(args: Any) -> str:
    """The text of `args` that is shown while it arrives."""
    if isinstance(args, str):
        return "" if may_be_encoded(args) else args
    if isinstance(args, list):
        odd = next((number for number, item in enumerate(args) if not isinstance(item, str)), len(args))
        return "\n".join(args[:odd])
    if isinstance(args, dict):
        first = next((args[key] for key in args if key in STREAMED_KEYS and args[key] is not None), None)
        return first if isinstance(first, str) else ""
    return ""
