"""Reads one part of a chat turn while it streams: text for the user, with hidden blocks in it, and calls of tools.

Rule 1: all text of a reply counts before its calls, whatever order they come in. Thoughts are no text, and calls that
stand in the text (in JSON, or in the notation of a model) are calls.
Rule 2: a call that cannot be made is answered by its reason, as a tool answers. The text and the other calls stay.
Rule 3: only what the scanner releases is shown. What it holds back at the end of a part may belong to the next one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from contracts.runs.actions import PLAN, TASK
from contracts.runs.step_events import ReplyForm
from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from contracts.wire.limits import MAX_INLINE_BYTES
from services.planner.models.types import Reply
from services.planner.replies.marked.blocks import Response
from services.planner.replies.marked.scanner import MarkerScanner
from services.planner.replies.plain_text import TextStream, is_action, read_plain
from services.planner.replies.strict_json import loads_or
from services.planner.run.ending.terminal import ELEMENTS
from services.planner.run.turn.decision import Calls, Decision, Final, Invalid, form_of
from services.planner.strategies.react.reading import ReactReading

NOTHING_SAID = "The reply holds no text for the user and no call of a tool: answer the user, or call a tool."
NOT_TOGETHER = "Background tasks and other tools cannot be called in one reply: call this again."
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9_-]")
MAX_NAME_CHARACTERS = 64


class ChatReading(ReactReading):
    """A part of a turn.

    `scanner`: makes a scanner that has read the parts before; `args_of`: the arguments of a final answer from the
    response to the whole turn.
    """

    _expects_json = False
    _text: TextStream

    def __init__(
        self,
        specs: Mapping[str, ToolSpec],
        scanner: Callable[[], MarkerScanner],
        args_of: Callable[[Response], dict[str, Any]],
        **options: Any,
    ) -> None:
        super().__init__(specs, **options)
        self._begin_as_text()
        self._new_scanner, self._args_of = scanner, args_of
        self._scanner = scanner()
        self._said: list[str] = []
        """What the scanner has read of this part."""
        self._shown = [self._scanner.message]

    @property
    def shown(self) -> str:
        """The message, as far as it was streamed to listeners."""
        return "".join(self._shown)

    def feed(self, text: str) -> str:
        """Read a part of the text, and return the text to stream."""
        was_open, said = self._scanner.open_block, self._text.feed(text)
        self._said.append(said)
        visible = self._scanner.feed(said)
        self._shown.append(visible)
        self.block_begun = self._scanner.open_block if was_open is None else None
        return visible

    def decide(self, reply: Reply) -> Decision:
        """Return the decision of the complete reply."""
        if not self._native_reasoning:
            reply = replace(reply, reasoning=None)
        plain = read_plain(reply.text, self._names, is_expected=self._habit.is_expected)
        normalized = self._normalized(plain.action, reply) if plain.action else None
        is_call = plain.written is not None or (normalized is not None and is_action(plain.action, normalized))
        text = "".join(self._said) if is_call else plain.text
        decision: Decision | None = None
        if reply.tool_calls:
            decision = self._native(reply)
        elif plain.written is not None:
            decision = self._called(reply, plain.written)
        elif is_call and normalized is not None:
            decision = self._decided(reply, normalized)
        if not reply.tool_calls:
            self._habit.note(is_unopened=plain.is_unopened)
        if isinstance(decision, Invalid):
            if reply.ending == "whole" or not text.strip():
                return decision
            decision = None  # Of a reply that was cut counts what was said.
        if isinstance(decision, Final) and (is_call or not text.strip()):
            text = str(decision.args.get("answer", ""))
        return self._part(reply, decision, text, reply.reasoning or plain.thought)

    def _part(self, reply: Reply, decision: Decision | None, text: str, thought: str | None) -> Decision:
        """Return a decision as a part of the message, with its text. None: the text is the end of the turn."""
        if text.startswith(read := "".join(self._said)):
            self._scanner.feed(text[len(read) :])
        else:
            self._scanner = self._new_scanner()
            self._scanner.feed(text)
        part: dict[str, Any] = {"said": text, "message": self._scanner.message, "thought": thought}
        if isinstance(decision, Calls) and (reply.ending == "whole" or not decision.refused):
            return replace(decision, **part)
        response = self._scanner.finish()[1]
        args = self._args_of(response)
        if isinstance(decision, Final):
            beside = decision.args.get("warnings")
            warnings = [*(beside if isinstance(beside, list) else []), *args["warnings"]]
            return replace(decision, args={**decision.args, **args, "warnings": warnings}, has_text=True, **part)
        common: dict[str, Any] = {"usage": reply.usage, "reasoning": reply.reasoning}
        final = Final(args=args, form=ReplyForm(form="text"), **common, **part)
        is_empty = not response.message and not args["extra"].keys() & ELEMENTS
        if text.strip() or reply.ending != "whole" or not (is_empty or thought):
            return final
        return Invalid(complaint=NOTHING_SAID, reply=reply.text, salvage=None if is_empty else final, **common)

    def _native(self, reply: Reply) -> Decision:
        """Return the decision of native calls. Where they cannot all be made, each is judged alone."""
        whole = self._decided_calls(reply, reply.tool_calls)
        if not isinstance(whole, Invalid):
            return whole
        calls: list[tuple[str, dict[str, Any]]] = []
        refused: dict[int, Fault] = {}
        for call in reply.tool_calls:
            one = self._decided_calls(reply, [call])
            if isinstance(one, Calls) and (one.node != TASK or len(reply.tool_calls) == 1):
                calls += one.calls
            elif not isinstance(one, Final):
                complaint = one.complaint if isinstance(one, Invalid) else NOT_TOGETHER
                refused[len(calls)] = Fault(code="invalid_args", reason=complaint)
                name = _NOT_OF_NAMES.sub("_", call["function"]["name"])[:MAX_NAME_CHARACTERS]
                text = call["function"]["arguments"]
                args = loads_or(text) if len(text) <= MAX_INLINE_BYTES else None
                calls.append((name or "unnamed", args if isinstance(args, dict) else {}))
        return Calls(
            node=calls[0][0] if len(calls) == 1 else PLAN,
            calls=tuple(calls),
            refused=refused,
            usage=reply.usage,
            reasoning=reply.reasoning,
            form=form_of("native", ()),
        )

    def _allowed(self) -> str:
        return "Call a tool, or answer with text." if self._listed else "There are no tools: answer with text."
