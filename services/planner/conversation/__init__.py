"""What the model is told: pure functions from facts to messages.

Rule 1: the system message is the same from turn to turn and the conversation only grows, so that provider caches hit. What
belongs to one turn alone, a repair or a budget, stands at the end.
Rule 2: what tools, callers and descriptions say is data: it stands as JSON between markers that it cannot close.
Rule 3: every message has text; roles are system, user and assistant only, so that any chat template takes them. Only the transport
`tools` (native.py) speaks in calls and their results, for models that were made for it.
"""

from contracts.events import ActionFormat
from services.planner.conversation import native
from services.planner.conversation.catalogue import real_name, shown_name
from services.planner.conversation.history import decision_messages, observation_messages
from services.planner.conversation.messages import (
    answer_note,
    as_data,
    budget_note,
    decision_message,
    observation_message,
    question_message,
    repair_messages,
    system_message,
)

__all__ = [
    "ActionFormat",
    "answer_note",
    "as_data",
    "budget_note",
    "decision_message",
    "decision_messages",
    "native",
    "observation_message",
    "observation_messages",
    "question_message",
    "real_name",
    "repair_messages",
    "shown_name",
    "system_message",
]
