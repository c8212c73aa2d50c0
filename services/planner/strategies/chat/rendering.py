"""The dialects of the strategy `chat`: what the model said is shown to it as it said it, hidden blocks included. Pure.

Without native calls, calls stand as JSON behind the text.
"""

from dataclasses import dataclass

from contracts.runs.events import Repaired, Step
from services.planner.conversation.json_actions import JsonActions
from services.planner.conversation.messages import Message, rejection, says
from services.planner.conversation.native import NativeTools
from services.planner.conversation.rendering import Dialect

_COMPLAINT = "{reason}\nGo on in the way that is described above. Do not apologise or explain."


class ChatNative(NativeTools):
    """Text, and native calls."""

    def decision(self, step: Step) -> Message:
        """Render a part of the turn, or an answer of an earlier turn."""
        if not step.calls:
            return says("assistant", _text(step))
        return {**super().decision(step), **({"content": said} if (said := _text(step)) else {})}

    def rejection(self, repaired: Repaired) -> list[Message]:
        """Render a reply that was not accepted, and the complaint about it."""
        return rejection(repaired, _COMPLAINT)


@dataclass(frozen=True, slots=True)
class ChatJson(JsonActions):
    """Text, and calls as JSON behind it."""

    def decision(self, step: Step) -> Message:
        """Render a part of the turn, or an answer of an earlier turn."""
        text = _text(step)
        if not step.calls:
            return says("assistant", text)
        action = str(JsonActions.decision(self, step)["content"])
        return says("assistant", f"{text}\n{action}" if text else action)

    def rejection(self, repaired: Repaired) -> list[Message]:
        """Render a reply that was not accepted, and the complaint about it."""
        return rejection(repaired, _COMPLAINT)


def dialect(*, is_native: bool) -> Dialect:
    """Return the dialect of a run."""
    return ChatNative() if is_native else ChatJson()


def _text(step: Step) -> str:
    said = step.said if isinstance(step.said, str) else ""
    return said if said.strip() else step.answer or ""
