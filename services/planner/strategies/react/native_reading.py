"""Reads a reply of native tool calls. The calls are converted to the equivalent JSON action while they stream."""

from dataclasses import replace
from typing import Any

from contracts.runs.step_events import ReplyForm
from services.planner.conversation import native
from services.planner.models.types import CallPiece, Reply
from services.planner.replies.actions import Normalized
from services.planner.replies.plain_text import TextStream, is_action, read_plain
from services.planner.run.turn.decision import Decision, Final, Invalid
from services.planner.strategies.react.reading import ReactReading, TextReading

NOTHING_SAID = "The reply holds a thought, and no answer behind it: answer the user, or call a function."


class NativeReading(ReactReading):
    """A reply of native calls. Only a first call of `final_response` is streamed, through the answer stream.

    Text without calls is the answer, and is streamed as it comes. Text beside calls is the model's reasoning: what was
    shown of it is replaced by what the run shows next.
    """

    _first: int | None = None
    _name = ""
    _begun = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._text = TextStream(self._stream, is_expected=self._habit.is_expected, may_announce=True)
        self._head = self._text.head

    @property
    def shown(self) -> str:
        """The text of this reply that was streamed to listeners."""
        return self._text.shown or self._stream.shown

    def feed(self, text: str) -> str:
        """Read a part of the text, and return the text to stream."""
        return self._text.feed(text) if self._first is None else ""

    def feed_call(self, piece: CallPiece) -> str:
        """Read a part of a call, and return the answer text to stream."""
        self._first = piece.index if self._first is None else self._first
        if piece.index != self._first or self._text.shown:
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
        self._stream.finish()
        reasoning = reply.reasoning if self._native_reasoning else None
        plain = read_plain(reply.text, self._names, is_expected=self._habit.is_expected)
        if reply.tool_calls:
            thought = reply.reasoning or reply.text.strip() or None
            return replace(
                self._decided_calls(replace(reply, reasoning=thought), reply.tool_calls), reasoning=reasoning
            )
        self._habit.note(is_unopened=plain.is_unopened)
        reply = replace(reply, reasoning=reasoning)
        if plain.written is not None:
            return self._called(reply, plain.written)
        if plain.action:
            normalized = self._normalized(plain.action, reply)
            if is_action(plain.action, normalized):
                return self._decided(reply, normalized)
        if not plain.text.strip():
            return Invalid(complaint=NOTHING_SAID, reply=reply.text, usage=reply.usage, reasoning=reasoning)
        thought = reasoning or plain.thought
        form = ReplyForm(form="text")
        return Final(args={"answer": plain.text}, thought=thought, usage=reply.usage, reasoning=reasoning, form=form)


class NativeTextReading(TextReading):
    """The answer text that was asked for alone. If the model calls a function instead, the call is read."""

    def decide(self, reply: Reply) -> Decision:
        """Return a Final for any reply."""
        if reply.tool_calls and not reply.text.strip():
            reply = replace(reply, text=native.action_of(reply.tool_calls)[0])
        return super().decide(reply)
