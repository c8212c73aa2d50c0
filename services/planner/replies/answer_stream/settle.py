"""After the last character: does the final parse agree with what was shown?"""

from dataclasses import dataclass
from typing import Literal

from contracts.actions import FINAL_RESPONSE, PlannerAction
from services.planner.replies.answer_stream.stream import AnswerStream

Void = Literal["unparseable", "another_action", "another_answer"]
"""Why shown text does not count: the reply is no action; it is one, but not a final one; it is final, with another
answer."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What is left to do with a reply that has ended.

    `action` is to be executed; None: the reply is none and has to be repaired. `text` is the rest of a final answer, to
    be emitted as one chunk before `done`; often empty. With `void` set, what was shown does not count: the turn goes on
    under the next attempt, and `text` (the whole answer where the action is final) belongs to that attempt.
    """

    action: PlannerAction | None
    text: str = ""
    void: Void | None = None


def settle(stream: AnswerStream, action: PlannerAction | None) -> Settled:
    """Compare what `stream` gave out with the `action` that the final parse made of the same reply (None: it made none).

    After it, the chunks of the last attempt together are the answer, whatever the reply was. A text that stands in for
    a reply (salvage, a fallback) is settled like an answer: as the final action that holds it.
    """
    shown = stream.shown
    answer = _answer(action)
    if answer is not None and answer.startswith(shown):
        return Settled(action, answer[len(shown) :])
    if not shown:
        return Settled(action)
    if action is None:
        return Settled(None, void="unparseable")
    if answer is None:
        return Settled(action, void="another_action")
    return Settled(action, answer, void="another_answer")


def _answer(action: PlannerAction | None) -> str | None:
    """The answer of a final action, "" where it has none; None for any other action."""
    if action is None or action.next_node != FINAL_RESPONSE:
        return None
    answer = action.args.get("answer")
    return answer if isinstance(answer, str) else ""
