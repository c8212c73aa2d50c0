"""Reads the replies of the strategy `planned` while they stream: a plan, and the answer."""

import re
from collections.abc import Mapping
from typing import Any

from contracts.runs.events import ActionTransport
from contracts.runs.plans import TOOL_CALLS, OverLimit, PlainError, Plan, PlanCall, PlanError
from contracts.tools.messages import ToolSpec
from runwire.plans import DirectResponse, PlanBounds, PlanCheck, check_plan, read_plan, warning_line
from services.planner.models.types import CallPiece, Reply
from services.planner.replies.actions import THINK_TAGS, meant, renamed
from services.planner.run.turn.decision import Decision, Final
from services.planner.strategies.planned.finding import NoPlan, arguments_of, has_known_type, plan_alone_in, plan_in
from services.planner.strategies.planned.rendering import PLANNING
from services.planner.strategies.planned.state import PLAN, Planned
from services.planner.strategies.planned.stream import PlanStream
from services.shared.redaction.json_values import cut

MAX_REASONING_BYTES = 32_000
"""Of a plan, for people and for the request for the answer."""
_NAMES = "|".join(THINK_TAGS)
_THOUGHTS = re.compile(rf"(?:\s*<({_NAMES})>.*?</\1>)+\s*", re.IGNORECASE | re.DOTALL)
_SAID = re.compile(r"\S")
_OPENING = re.compile(rf"<({_NAMES})>", re.IGNORECASE)
_MAY_BE_OPENING = re.compile(rf"<[a-z/]{{0,{max(map(len, THINK_TAGS))}}}\Z", re.IGNORECASE)
_LONGEST_TAG = max(map(len, THINK_TAGS)) + len("</>")
_SEVERAL = "the model called several functions in one reply; its first plan counts"
_CALLED = f"the model called tools instead of {PLANNING}; its calls are the plan"


class PlanReading:
    """A reply to the request for a plan. `specs`: the tools by the names that the model knows."""

    def __init__(
        self,
        specs: Mapping[str, ToolSpec],
        *,
        transport: ActionTransport,
        bounds: PlanBounds,
        native_reasoning: bool = True,
    ) -> None:
        self._specs = specs
        self._is_native = transport == "tools"
        self._bounds = bounds
        self._native_reasoning = native_reasoning
        self._stream = PlanStream()
        self._first: int | None = None
        self._name = ""

    @property
    def shown(self) -> str:
        """The text of this reply that was streamed to listeners."""
        return self._stream.shown

    def feed(self, text: str) -> str:
        """Read a part of the reply. With native calls, text beside them is the model's reasoning."""
        return "" if self._is_native else self._stream.feed(text)

    def feed_call(self, piece: CallPiece) -> str:
        """Read a part of a native call, and return the text to stream: of the first call, if it is a plan."""
        self._first = piece.index if self._first is None else self._first
        if not self._is_native or piece.index != self._first:
            return ""
        self._name += piece.name
        return self._stream.feed(piece.arguments) if self._name == PLANNING else ""

    def feed_reasoning(self, text: str) -> str:
        """Return the reasoning to stream; nothing where the deployment ignores native reasoning."""
        return text if self._native_reasoning else ""

    def decide(self, reply: Reply) -> Decision:
        """Return the answer of a direct response, or the plan with its errors."""
        reasoning = reply.reasoning if self._native_reasoning else None
        thought = reasoning or (reply.text.strip() or None if reply.tool_calls else None)
        common: dict[str, Any] = {"usage": reply.usage, "reasoning": reasoning, "thought": thought}
        try:
            found, warnings = self._read(reply)
        except NoPlan as error:
            if error.error is None or (self._is_native and not reply.tool_calls):
                text = without_thoughts(reply.text)
                return _direct(text, has_text=bool(text.strip()), **common)
            found, warnings = [error.error], ()
        if isinstance(found, DirectResponse):
            return _direct(found.content, warnings=warnings, **common)
        if isinstance(found, Plan) and self.shown:  # It has two types, and listeners have read its content.
            found = [PlanError(tool_index=None, error=PlainError(type="unparseable"))]
        return self._planned(found, {**common, "warnings": warnings})

    def _read(self, reply: Reply) -> tuple[DirectResponse | Plan | list[PlanError], tuple[str, ...]]:
        """Return what the reply plans, with warnings. Raises NoPlan."""
        called = [(call["function"]["name"], call["function"]["arguments"]) for call in reply.tool_calls]
        if planned := [arguments for name, arguments in called if name == PLANNING]:
            warnings = (_SEVERAL,) if len(called) > 1 else ()
            return read_plan(arguments_of(planned[0], self._bounds.max_depth)), warnings
        if called:
            calls = [
                {"tool_name": name, "arguments": arguments_of(text, self._bounds.max_depth)} for name, text in called
            ]
            plan = {"type": TOOL_CALLS, "reasoning": without_thoughts(reply.text), "calls": calls}
            return read_plan(plan), (_CALLED,)
        # Where the request offered native calls, a text is the answer, unless the whole text is a plan.
        find = plan_alone_in if self._is_native else plan_in
        return read_plan(find(reply.text, self._bounds.max_depth)), ()

    def _planned(self, found: Plan | list[PlanError], common: dict[str, Any]) -> Planned:
        """Check a plan. Of one that cannot be read, or is too large as a whole, only the errors are kept."""
        if isinstance(found, list):
            return Planned(plan=Plan(calls=[]), errors=tuple(found), **common)
        reasoning = cut(found.reasoning, MAX_REASONING_BYTES)
        names = {call.tool_name: meant(call.tool_name, self._specs.keys()) or call.tool_name for call in found.calls}
        renamings = filter(None, (renamed(*pair) for pair in names.items()))
        calls = [call.model_copy(update={"tool_name": names[call.tool_name]}) for call in found.calls]
        found = found.model_copy(update={"calls": calls})
        checked = check_plan(found.calls, self._specs, self._bounds)
        if not checked.valid:
            plan = Plan(reasoning=reasoning, calls=_kept_calls(found, checked))
            errors = tuple(checked.errors)
            return Planned(plan=plan, errors=errors, errors_left_out=checked.errors_left_out, **common)
        lines = (warning_line(each, found.calls) for each in checked.warnings)
        warnings = (*common["warnings"], *renamings, *lines)
        calls = [PlanCall(tool_name=self._specs[call.tool_name].name, arguments=call.arguments) for call in found.calls]
        return Planned(plan=Plan(reasoning=reasoning, calls=calls), **{**common, "warnings": warnings})


class AnswerReading:
    """The answer text, streamed as it comes, without thoughts before it.

    `args`: the other fields of an answer whose text is asked for alone. `node`: of the step that it ends. A model that
    still writes a plan answers by its content.
    """

    def __init__(self, args: Mapping[str, Any], node: str, *, native_reasoning: bool = True) -> None:
        self._args, self._node = args, node
        self._native_reasoning = native_reasoning
        self._thoughts = _Thoughts()
        self._plan: PlanStream | None = None
        self._flows = False
        self._text: list[str] = []

    @property
    def shown(self) -> str:
        """The text of this reply that was streamed to listeners."""
        return self._plan.shown if self._plan is not None else "".join(self._text)

    def feed(self, text: str) -> str:
        """Read a part of the reply, and return the text to stream now."""
        if self._plan is not None:
            return self._plan.feed(text)
        if not self._flows:
            text = self._thoughts.feed(text)
            if not text:
                return ""
            if text[0] in "{`":
                self._plan = PlanStream()
                return self._plan.feed(text)
            self._flows = True
        self._text.append(text)
        return text

    def feed_call(self, piece: CallPiece) -> str:
        """Ignore native calls: no tool was offered."""
        del piece
        return ""

    def feed_reasoning(self, text: str) -> str:
        """Return the reasoning to stream; nothing where the deployment ignores native reasoning."""
        return text if self._native_reasoning else ""

    def decide(self, reply: Reply) -> Decision:
        """Return the answer; without a text, it is asked for once more."""
        text = without_thoughts(reply.text).lstrip()
        if text[:1] in {"{", "`"}:
            text = _content_of(text)
        args = {**self._args, "answer": text} if text.strip() else dict(self._args)
        reasoning = reply.reasoning if self._native_reasoning else None
        return Final(
            args=args,
            node=self._node,
            has_text=bool(text.strip()),
            usage=reply.usage,
            reasoning=reasoning,
            thought=reasoning,
        )


class _Thoughts:
    """Leaves out blanks and thoughts before a text, part by part. Each character is read once."""

    def __init__(self) -> None:
        self._held = ""
        """What may be the beginning of a tag."""
        self._closing: re.Pattern[str] | None = None
        """Ends the thought that goes on."""

    def feed(self, text: str) -> str:
        """Return the beginning of the text; empty while it has not begun."""
        text, self._held, begin = self._held + text, "", 0
        while True:
            if self._closing is not None:
                end = self._closing.search(text, begin)
                if end is None:
                    self._held = text[max(begin, len(text) - _LONGEST_TAG) :]
                    return ""
                begin, self._closing = end.end(), None
            begin = len(text) if (said := _SAID.search(text, begin)) is None else said.start()
            opening = _OPENING.match(text, begin)
            if opening is None:
                break
            self._closing = re.compile(f"</{opening[1]}>", re.IGNORECASE)
            begin = opening.end()
        text = text[begin:]
        if _MAY_BE_OPENING.match(text):
            self._held, text = text, ""
        return text


def without_thoughts(text: str) -> str:
    """Return a text without the thoughts before it, and the blanks around them."""
    thoughts = _THOUGHTS.match(text)
    return text if thoughts is None else text[thoughts.end() :]


def _content_of(text: str) -> str:
    """Return the content of a direct response, nothing of a plan of calls, and any other text as it is."""
    try:
        value = plan_in(text, PlanBounds().max_depth)
    except NoPlan:
        return text
    if not has_known_type(value):
        return text
    found = read_plan(value)
    return found.content if isinstance(found, DirectResponse) else ""


def _direct(content: str, **fields: Any) -> Final:
    return Final(args={"answer": content}, node=PLAN, **fields)


def _kept_calls(plan: Plan, checked: PlanCheck) -> list[PlanCall]:
    """Return the calls for the log: none of a plan that is too large, and none of the arguments over a limit."""
    over = {error.tool_index for error in checked.errors if isinstance(error.error, OverLimit)}
    if None in over:
        return []
    return [
        call if index not in over else call.model_copy(update={"arguments": {}})
        for index, call in enumerate(plan.calls)
    ]
