"""One reply of the model as native tool calls. What it calls is read as the JSON action that it stands for, character by character."""

from dataclasses import replace

from services.planner.conversation import native
from services.planner.models.litellm import Reply
from services.planner.models.types import CallPiece
from services.planner.replies.actions import Normalized
from services.planner.run.decision import Decision, Final, Invalid
from services.planner.strategies.react.reading import ReactReading, TextReading


class NativeReading(ReactReading):
    """A reply of calls. Only a first call of `final_response` can be shown: its arguments are fed to the answer stream as they arrive.

    Text beside calls is the model's reasoning. Text without calls is held until the reply has ended: only then is it an answer.
    """

    _first: int | None = None
    _name = ""
    _begun = False

    def feed(self, text: str) -> str:
        """Hold it: calls may follow."""
        del text
        return ""

    def feed_call(self, piece: CallPiece) -> str:
        """Take in a piece of a call; return what of the answer may be shown."""
        self._first = piece.index if self._first is None else self._first
        if piece.index != self._first:
            return ""
        self._name += piece.name
        if not piece.arguments:
            return ""
        head = "" if self._begun else native.head_of(self._name)
        self._begun = True
        return self._stream.feed(head + piece.arguments)

    def _complaint(self, normalized: Normalized) -> str:
        return normalized.cause  # JSON in the reply is not what is expected here.

    def decide(self, reply: Reply) -> Decision:
        """Turn the whole reply into a decision."""
        if reply.tool_calls:
            thought = reply.reasoning or reply.text.strip() or None
            decision = super().decide(replace(reply, text=native.action_of(reply.tool_calls), reasoning=thought))
            return replace(decision, reasoning=reply.reasoning if self._native_reasoning else None)
        decision = super().decide(reply)
        if isinstance(decision, Invalid) and isinstance(decision.salvage, Final):
            return replace(decision.salvage, warnings=())  # Plain text instead of a call is an answer.
        return decision


class NativeTextReading(TextReading):
    """The text of an answer that was asked for alone; a model that calls a function again is read as one."""

    def decide(self, reply: Reply) -> Decision:
        """Whatever came, the run ends."""
        if reply.tool_calls and not reply.text.strip():
            reply = replace(reply, text=native.action_of(reply.tool_calls))
        return super().decide(reply)
