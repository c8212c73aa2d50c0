"""Reads the replies of the strategy `planned` while they stream: a plan, and the answer. Pure.

The plan is the arguments of a native call, or an object in a text.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from contracts.runs.decisions import DIRECT_RESPONSE, TOOL_CALLS, OverLimit, PlainError, Plan, PlanCall, PlanError
from contracts.runs.events import ActionTransport
from contracts.runs.step_events import ReplyForm, ReplyShape
from contracts.tools.messages import ToolSpec
from runwire.plans import DirectResponse, PlanBounds, PlanCheck, check_plan, read_plan, warning_line
from services.planner.models.types import CallPiece, Reply
from services.planner.replies.actions.names import FINAL_FIELDS, meant
from services.planner.replies.actions.reading import bounded, renamed
from services.planner.replies.actions.scan import Broken, Scan, ThoughtEnds
from services.planner.replies.answer_stream.stream import ObjectStream
from services.planner.replies.answer_stream.tokens import Token, Tokens
from services.planner.replies.plain_text import PLAN_KEYS, Plain, answer_in, begins_action, read_plain
from services.planner.replies.strict_json import MAX_DEPTH, NotJson, loads, loads_or, well_formed_object
from services.planner.replies.thoughts import apart
from services.planner.run.turn.decision import Decision, Final, form_of
from services.planner.strategies.base import Reading
from services.planner.strategies.planned.execution import PLAN, PLANNING, Planned
from services.shared.json_schema.checks import certain_faults
from services.shared.redaction.json_values import cut


class PlanStream(ObjectStream):
    """Reads one reply part by part, and returns the text to stream at once."""

    def __init__(self) -> None:
        super().__init__()
        self._field = ""
        self._type: list[str] = []
        self._is_direct: bool | None = None
        """None: the type is not known yet."""
        self._content: list[str] = []

    def _begin(self) -> Tokens:
        return Tokens(self._on_token)

    def _on_read(self, tokens: Tokens) -> None:
        if tokens.ended and self._is_direct is None:
            self._tokens = None
            self._content.clear()
        else:
            self._over = tokens.ended or tokens.broken or self._is_direct is False

    def _on_token(self, token: Token, depth: int, text: str) -> None:
        if depth != 1:
            return
        if token is Token.KEY:
            self._field, self._type = text, []
        elif self._field == "type" and self._is_direct is None:
            if token is Token.TEXT:
                self._type.append(text)
            elif token is not Token.TEXT_BEGINS:
                self._is_direct = token is Token.TEXT_ENDS and "".join(self._type) == DIRECT_RESPONSE
        elif self._field == "content" and token is Token.TEXT:
            self._content.append(text)
        if self._is_direct is not None:
            self._new += self._content if self._is_direct else []
            self._content.clear()


_FENCES = re.compile(r"```\w*\s*(\{[^`]*\})\s*```")
_IN_FENCES = re.compile(r"```\w*\s*(\{.*\})\s*```", re.DOTALL)


class NoPlan(ValueError):
    """There is no object to read as a plan. `broken`: why the one that is there cannot be read; None: there is none."""

    def __init__(self, broken: NotJson | None = None) -> None:
        super().__init__("no plan")
        self.broken = broken


def arguments_of(text: str) -> Any:
    """Return the arguments of a native call as JSON. Raises NoPlan."""
    if not text.strip():
        return {}
    try:
        return loads(text, lenient=True)
    except NotJson as error:
        raise NoPlan(error) from None


def plan_in(text: str) -> dict[str, Any]:
    """Return the object in a text that is meant as a plan. Raises NoPlan.

    That is the only one, else the first with a known type, else the first where none is broken.
    """
    stripped = text.strip(" \t\r\n")
    whole = well_formed_object(stripped, 0) if stripped.startswith("{") and stripped.endswith("}") else None
    if whole is not None:
        return whole[0]
    first: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    broken: NotJson | None = None
    for found in Scan(text).items():
        if isinstance(found, ThoughtEnds):
            first = plan = broken = None
        elif isinstance(found, Broken):
            broken = broken or found.error
        elif has_known_type(found.value):
            plan = plan or found.value
        else:
            first = first or found.value
    if plan is not None:
        return plan
    if broken is not None or first is None:
        raise NoPlan(broken)
    return first


def plan_alone_in(text: str) -> dict[str, Any]:
    """Return the plan that a text is, fenced or not: a longer text may show one to people. Raises NoPlan."""
    stripped = text.strip(" \t\r\n")
    fenced = _IN_FENCES.fullmatch(stripped)
    body = fenced[1] if fenced is not None else stripped
    if not (body.startswith("{") and body.endswith("}")):
        raise NoPlan
    value = arguments_of(body)
    if not isinstance(value, dict) or not has_known_type(value):
        raise NoPlan
    return value


def has_known_type(value: dict[str, Any]) -> bool:
    """Whether an object says that it is a plan, be it valid or not."""
    return value.get("type") in (DIRECT_RESPONSE, TOOL_CALLS)


_UNPARSEABLE = PlanError(tool_index=None, error=PlainError(type="unparseable"))
MAX_REASONING_BYTES = 32_000
"""Of a plan, for people and for the request for the answer."""
_BEGINS = partial(begins_action, keys=PLAN_KEYS)
_SEVERAL = "the model called several functions in one reply; its first plan counts"
_FENCED = f"the model wrote its plan into a text instead of calling {PLANNING}; that plan counts"
_CALLED = f"the model called tools instead of {PLANNING}; its calls are the plan"


class PlanReading(Reading):
    """A reply to the request for a plan. `specs`: the tools by the names that the model knows."""

    def __init__(
        self, specs: Mapping[str, ToolSpec], *, transport: ActionTransport, bounds: PlanBounds, **options: Any
    ) -> None:
        super().__init__(PlanStream(), sure="{[`", **options)
        self._specs = specs
        self._is_native = transport == "tools"
        self._bounds = bounds
        if self._is_native:
            self._begin_as_text(_BEGINS, may_announce=True)
        self._first: int | None = None
        self._name = ""

    def feed(self, text: str) -> str:
        """Read a part of the reply. Behind a native call it is not shown."""
        return super().feed(text) if self._first is None or not self._is_native else ""

    def feed_call(self, piece: CallPiece) -> str:
        """Read a part of a native call, and return the text to stream: of the first call, if it is a plan."""
        self._first = piece.index if self._first is None else self._first
        if self._text is None or piece.index != self._first or self._text.shown:
            return ""
        self._name += piece.name
        return self._stream.feed(piece.arguments) if self._name == PLANNING else ""

    def decide(self, reply: Reply) -> Decision:
        """Return the answer of a direct response, or the plan with its errors."""
        reasoning = reply.reasoning if self._native_reasoning else None
        thought = reasoning or (reply.text.strip() or None if reply.tool_calls else None)
        common: dict[str, Any] = {"usage": reply.usage, "reasoning": reasoning, "thought": thought}
        plain = read_plain(reply.text, self._specs.keys(), is_expected=self._habit.is_expected)
        if not reply.tool_calls:
            self._habit.note(is_unopened=plain.is_unopened)
            common["thought"] = reasoning or plain.thought
        try:
            found, warnings = self._read(reply, plain)
        except NoPlan as none:
            if plain.written is None and (none.broken is None or (self._is_native and not reply.tool_calls)):
                common["form"] = ReplyForm(form="text")
                if self._is_native and (planned := self._only_fenced(plain.text, common)) is not None:
                    return planned
                return _direct(DirectResponse(plain.text), has_text=bool(plain.text.strip()), **common)
            is_too_deep = none.broken is not None and none.broken.depth >= MAX_DEPTH
            too_deep = OverLimit(type="too_deep", limit=self._bounds.max_depth)
            found, warnings = [PlanError(tool_index=None, error=too_deep) if is_too_deep else _UNPARSEABLE], ()
        written: ReplyShape = "notation" if plain.written is not None else "plan"
        common["form"] = form_of("native" if reply.tool_calls else written, warnings)
        if isinstance(found, DirectResponse):
            return _direct(found, warnings=warnings, **common)
        if isinstance(found, Plan) and self._stream.shown:  # It has two types, and listeners have read its content.
            found = [_UNPARSEABLE]
        return self._planned(found, {**common, "warnings": warnings})

    def _read(self, reply: Reply, plain: Plain) -> tuple[DirectResponse | Plan | list[PlanError], tuple[str, ...]]:
        """Return what the reply plans, with warnings. Raises NoPlan."""
        called = [(call["function"]["name"], call["function"]["arguments"]) for call in reply.tool_calls]
        if planned := [arguments for name, arguments in called if name == PLANNING]:
            warnings = (_SEVERAL,) if len(called) > 1 else ()
            return read_plan(arguments_of(planned[0])), warnings
        if called:
            calls = [{"tool_name": name, "arguments": arguments_of(text)} for name, text in called]
            plan = {"type": TOOL_CALLS, "reasoning": apart(reply.text).text, "calls": calls}
            return read_plan(plan), (_CALLED,)
        if plain.written is not None and '"type"' not in reply.text:
            if not plain.written.is_whole or not self._specs:
                raise NoPlan
            calls = [{"tool_name": name, "arguments": given} for name, given in plain.written.fitted(self._specs)]
            return read_plan({"type": TOOL_CALLS, "calls": calls}), (_CALLED,)
        # Where the request offered native calls, a text is the answer, unless the whole text is a plan.
        find = plan_alone_in if self._is_native else plan_in
        text = plain.action or plain.text if self._is_native else reply.text
        return read_plan(find(text)), ()

    def _only_fenced(self, text: str, common: dict[str, Any]) -> Planned | None:
        """Return the plan in a fence of a prose, where it is the only one and would run: the model cannot call."""
        values = [loads_or(fence[1]) for fence in _FENCES.finditer(text)]
        found = [read_plan(each) for each in values if isinstance(each, dict) and each.get("type") == TOOL_CALLS]
        if len(found) != 1 or not isinstance(found[0], Plan):
            return None
        form = ReplyForm(form="plan", rules=["code_fence", "text_around"])
        planned = self._planned(found[0], {**common, "warnings": (_FENCED,), "form": form})
        return None if planned.errors else planned

    def _planned(self, found: Plan | list[PlanError], common: dict[str, Any]) -> Planned:
        """Check a plan. Of one that cannot be read, or is too large as a whole, only the errors are kept."""
        if isinstance(found, list):
            return Planned(plan=Plan(calls=[]), errors=tuple(found), **common)
        reasoning = cut(found.reasoning, MAX_REASONING_BYTES)
        names = {call.tool_name: meant(call.tool_name, self._specs.keys()) or call.tool_name for call in found.calls}
        renamings = filter(None, (renamed(*pair) for pair in names.items()))
        calls = [call.model_copy(update={"tool_name": names[call.tool_name]}) for call in found.calls]
        found = found.model_copy(update={"calls": calls})
        checked = check_plan(found.calls, self._specs, self._bounds, certain_faults)
        if not checked.valid:
            plan = Plan(reasoning=reasoning, calls=_kept_calls(found, checked))
            errors = tuple(checked.errors)
            return Planned(plan=plan, errors=errors, errors_left_out=checked.errors_left_out, **common)
        lines = (warning_line(each, found.calls) for each in checked.warnings)
        warnings = (*common["warnings"], *renamings, *lines)
        calls = [PlanCall(tool_name=self._specs[call.tool_name].name, arguments=call.arguments) for call in found.calls]
        return Planned(plan=Plan(reasoning=reasoning, calls=calls), **{**common, "warnings": warnings})


class AnswerReading(Reading):
    """The answer text, streamed as it comes, without thoughts before it.

    `args`: the other fields of an answer whose text is asked for alone. `node`: of the step that it ends. A model that
    still writes a plan answers by its content.
    """

    def __init__(self, args: Mapping[str, Any], node: str, **options: Any) -> None:
        super().__init__(PlanStream(), **options)
        self._args, self._node = args, node
        self._begin_as_text(_BEGINS)

    def decide(self, reply: Reply) -> Decision:
        """Return the answer; without a text, it is asked for once more."""
        plain = read_plain(reply.text, is_expected=self._habit.is_expected)
        self._habit.note(is_unopened=plain.is_unopened)
        found, warnings = answer_in(plain, frozenset())
        if _BEGINS(plain.text):
            found = _content_of(plain.text, found)
        text = str(found.get("answer", ""))
        args = {**found, **self._args, "answer": text} if text.strip() else dict(self._args)
        form = ReplyForm(form="plan" if _BEGINS(plain.text) else "text")
        has_text = bool(text.strip())
        return self._answer(reply, plain, args, node=self._node, has_text=has_text, warnings=warnings, form=form)


def _content_of(text: str, otherwise: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a direct response, nothing of a plan of calls; for any other text, `otherwise`."""
    try:
        value = plan_in(text)
    except NoPlan:
        return otherwise
    if not has_known_type(value):
        return otherwise
    found = read_plan(value)
    return _args_of(found, []) if isinstance(found, DirectResponse) else {}


def _args_of(response: DirectResponse, warnings: list[str]) -> dict[str, Any]:
    """Return a direct response as the arguments of an answer, with the known fields beside its content."""
    fields = {key: value for key, value in response.others.items() if key in FINAL_FIELDS}
    return {"answer": response.content, **bounded(fields, warnings)}


def _direct(response: DirectResponse, warnings: Sequence[str] = (), **fields: Any) -> Final:
    said = [*warnings]
    args = _args_of(response, said)
    return Final(args=args, node=PLAN, warnings=tuple(said), **fields)


def _kept_calls(plan: Plan, checked: PlanCheck) -> list[PlanCall]:
    """Return the calls for the log: none of a plan that is too large, and none of the arguments over a limit."""
    over = {error.tool_index for error in checked.errors if isinstance(error.error, OverLimit)}
    if None in over:
        return []
    return [
        call if index not in over else call.model_copy(update={"arguments": {}})
        for index, call in enumerate(plan.calls)
    ]
