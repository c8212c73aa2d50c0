"""Parses a model's reply into one action (docs/planner.md#what-else-is-understood).

`normalize_action` is the only parser of model output. It finds the objects in a reply (`scan`), chooses the one whose
shape is closest to an action, and reads it (`reading`, with `final` and `arguments` for its arguments).
If there is no action, it says exactly what is wrong. It never guesses: all arguments come from the reply, and no part
of a broken object is read.

`names` holds the rules that the answer stream shares, so the streamed and the executed action follow the same rules.
"""

from services.planner.replies.actions.forms import action_to_legacy
from services.planner.replies.actions.names import (
    FINAL_FIELDS,
    STREAMED_KEYS,
    ActionFormat,
    is_null_word,
    may_be_encoded,
    meant,
    opcode_of,
    streams_before_plan,
)
from services.planner.replies.actions.normalize import Normalized, normalize_action
from services.planner.replies.actions.reading import renamed
from services.planner.replies.actions.values import answer_text, pick_answer
from services.planner.replies.strict_json import ANSWER_KEYS, ONCE_KEYS

__all__ = [
    "ANSWER_KEYS",
    "FINAL_FIELDS",
    "ONCE_KEYS",
    "STREAMED_KEYS",
    "ActionFormat",
    "Normalized",
    "action_to_legacy",
    "answer_text",
    "is_null_word",
    "may_be_encoded",
    "meant",
    "normalize_action",
    "opcode_of",
    "pick_answer",
    "renamed",
    "streams_before_plan",
]
