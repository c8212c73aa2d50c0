"""Renders what was said before the question of a run, in the dialect of the run. Pure.

Rule 1: users' and assistants' messages alternate, and the last one is an assistant's, so the question follows.
Rule 2: the summary and the session's context are data. A past question cannot close its marker, and a past answer has
the form of a decision, so neither can pass for a message of the runtime.
"""

from collections.abc import Callable

from contracts.runs.actions import FINAL_RESPONSE
from contracts.runs.events import Step
from services.planner.conversation import texts
from services.planner.conversation.messages import Message, between, data_section, question_text, says
from services.planner.run.state.history import Conversation, PastTurn


def past_messages(conversation: Conversation, decision: Callable[[Step], Message]) -> list[Message]:
    """Render the past turns, oldest first. `decision`: renders an answer as the run's dialect does."""
    messages: list[Message] = []
    for turn in conversation.turns:
        lead = [] if messages else lead_lines(conversation)
        messages.append(says("user", "\n".join([*lead, *_asked(turn)])))
        answer = turn.answer.strip() or texts.NOT_ANSWERED
        messages.append(decision(Step(step=0, node=FINAL_RESPONSE, status="started", answer=answer)))
    return messages


def lead_lines(conversation: Conversation) -> list[str]:
    """Return what stands before the first past turn, or before the question if no turn is shown."""
    lines = [texts.CONVERSATION_LEAD] if conversation.turns else []
    if conversation.left_out:
        lines.append(_left_out(conversation.left_out))
    if conversation.summary:
        lines.append(data_section(texts.SUMMARY_LEAD, "summary", conversation.summary))
    return lines


def _asked(turn: PastTurn) -> list[str]:
    lines = [question_text(turn.question, turn.asked_at)]
    if turn.images:
        lines.append(_images(turn.images))
    return [*lines, *(between("input", text) for text in turn.inputs)]


def _left_out(turns: int) -> str:
    return "1 older turn is not shown." if turns == 1 else f"{turns} older turns are not shown."


def _images(images: int) -> str:
    came = "An image came" if images == 1 else f"{images} images came"
    return f"({came} with this question and cannot be seen any more.)"
