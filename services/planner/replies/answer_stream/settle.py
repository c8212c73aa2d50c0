"""Compares the final parse of a reply with the text that was streamed."""

from dataclasses import dataclass
from typing import Literal

from contracts.runs.actions import FINAL_RESPONSE, PlannerAction
from services.planner.replies.answer_stream.stream import AnswerStream

Void = Literal["unparseable", "another_action", "another_answer"]
"""Why streamed text does not count: the reply is no action, or no final action, or has another answer."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What follows a reply that has ended.

    `action`: to be executed; None: the reply is no action and must be repaired. `text`: the rest of a final answer, to
    be streamed as one chunk before `done`; often empty. With `void`, the streamed text does not count: the turn
    continues with the next attempt, and `text` (of a final action, the whole answer) belongs to that attempt.
    """

    action: PlannerAction | None
    text: str = ""
    void: Void | None = None


def settle(stream: AnswerStream, action: PlannerAction | None) -> Settled:
    """Compare the streamed text with the `action` of the final parse of the same reply (None: it found none).

    Afterwards the joined chunks of the last attempt are the answer, for any reply. A text that replaces a reply (a
    salvage, a fallback) is settled like an answer: as the final action that holds it.
    """
    shown = stream.shown
    answer = None
    if action is not None and action.next_node == FINAL_RESPONSE:
        answer = given if isinstance(given := action.args.get("answer"), str) else ""
    if answer is not None and answer.startswith(shown):
        return Settled(action, answer[len(shown) :])
    if not shown:
        return Settled(action)
    if action is None:
        return Settled(None, void="unparseable")
    if answer is None:
        return Settled(action, void="another_action")
    return Settled(action, answer, void="another_answer")
