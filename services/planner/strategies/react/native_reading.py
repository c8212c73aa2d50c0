"""Reads a reply of native tool calls. The calls are converted to the equivalent JSON action while they stream."""

from dataclasses import replace

from services.planner.conversation import native
from services.planner.models.types import CallPiece, Reply
from services.planner.replies.actions import Normalized
from services.planner.run.turn.decision import Decision, Final, Invalid
from services.planner.strategies.react.reading import ReactReading, TextReading


class NativeReading(ReactReading):
    """A reply of native calls. Only a first call of `final_response` is streamed, through the answer stream.

    Text beside calls is the model's reasoning. Text without calls is kept until the end of the reply, where it counts
    as the answer.
    """

    _first: int | None = None
    _name = ""
    _begun = False

    def feed(self, text: str) -> str:
        """Keep the text, since calls may follow."""
        del text
        return ""

    def feed_call(self, piece: CallPiece) -> str:
        """Read a part of a call, and return the answer text to stream."""
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
        return normalized.cause  # This transport expects calls, not JSON in the text.

    def decide(self, reply: Reply) -> Decision:
        """Return the decision of the complete reply."""
        if reply.tool_calls:
            thought = reply.reasoning or reply.text.strip() or None
            decision = super().decide(replace(reply, text=native.action_of(reply.tool_calls), reasoning=thought))
            return replace(decision, reasoning=reply.reasoning if self._native_reasoning else None)
        decision = super().decide(reply)
        if isinstance(decision, Invalid) and isinstance(decision.salvage, Final):
            return replace(decision.salvage, warnings=())  # Plain text instead of a call is an answer.
        return decision


class NativeTextReading(TextReading):
    """The answer text that was asked for alone. If the model calls a function instead, the call is read."""

    def decide(self, reply: Reply) -> Decision:
        """Return a Final for any reply."""
        if reply.tool_calls and not reply.text.strip():
            reply = replace(reply, text=native.action_of(reply.tool_calls))
        return super().decide(reply)
