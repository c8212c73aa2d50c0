"""The default dialect: one JSON action per turn (ACTIONS 1 to 4).

One parse decides both what is shown and what is executed: the answer stream shows characters only of an action that is certain to be
final, and `settle` compares them with the parsed action when the reply has ended.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from contracts.actions import FINAL_RESPONSE, PLAN, TASK, Join, PlannerAction
from contracts.tools import ToolSpec
from services.planner import prompts
from services.planner.actions import Normalized, normalize_action
from services.planner.agents import Agent
from services.planner.answer_stream import AnswerStream, settle
from services.planner.decisions import Calls, Decision, Final, Invalid
from services.planner.joins import JoinInvalid, check_join, check_plan, read_join
from services.planner.model import ModelRequest, Reply
from services.planner.run import Run
from services.runtime.schemas import InvalidSchema, complaints

_MAX_COMPLAINTS = 5
ActionFormat = Literal["auto", "unified", "legacy"]


class React:
    """Asks for one JSON action per turn."""

    def __init__(self, *, action_format: ActionFormat, native_reasoning: bool, idle_s: float, total_s: float) -> None:
        self._action_format = action_format
        self._native_reasoning = native_reasoning
        self._idle_s = idle_s
        self._total_s = total_s

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """The stable prefix (agent, format, catalogue), then the conversation so far, then the repair notes of this turn."""
        assert run.started is not None  # noqa: S101, `asked` follows `run_started` in every log
        system = prompts.system_message(agent, tools, action_format=self._action_format, limits=run.started.limits)
        return ModelRequest(
            model=run.model,
            messages=[system, *run.history, *run.notes],
            reasoning_effort=run.effort if self._native_reasoning else None,
            fallbacks=None if agent.fallbacks is None else tuple(agent.fallbacks),
            response_format={"type": "json_object"},
            timeout_s=self._idle_s,
            total_s=self._total_s,
        )

    def reading(self, run: Run, tools: Sequence[ToolSpec]) -> "ReactReading":
        """Read one reply: an action, or the text of an answer that was asked for alone."""
        specs = {prompts.shown_name(spec.name): spec for spec in tools}
        if run.final_args is not None:
            return TextReading(specs, self._action_format, run.final_args)
        return ReactReading(specs, self._action_format)


class ReactReading:
    """One reply as it comes in."""

    def __init__(self, specs: Mapping[str, ToolSpec], action_format: ActionFormat) -> None:
        self._specs = specs
        self._names = frozenset(specs)
        self._action_format = action_format
        self._stream = AnswerStream(action_format=action_format, tools=self._names)

    @property
    def shown(self) -> str:
        """What the user has seen of this reply."""
        return self._stream.shown

    def feed(self, text: str) -> str:
        """Take in a piece of the reply; return what of the answer may be shown."""
        return self._stream.feed(text)

    def decide(self, reply: Reply) -> Decision:
        """Turn the whole reply into a decision."""
        self._stream.finish()
        normalized = normalize_action(reply.text, reply.reasoning, tools=self._names, action_format=self._action_format)
        settled = settle(self._stream, normalized.action)
        if settled.void is not None or settled.action is None:
            return self._invalid(reply, normalized, normalized.complaint or "the answer that was shown is not the one of the action")
        common: dict[str, Any] = {
            "thought": normalized.reasoning,
            "reasoning": reply.reasoning,
            "usage": reply.usage,
            "warnings": normalized.warnings,
        }
        decision = self._decide(settled.action, common)
        if isinstance(decision, str):
            return self._invalid(reply, normalized, decision)
        return decision

    def _decide(self, action: PlannerAction, common: dict[str, Any]) -> Decision | str:
        """Return a decision, or the complaint that the model is told."""
        if action.next_node == FINAL_RESPONSE:
            return Final(args=action.args, has_text=bool(str(action.args.get("answer", "")).strip()), **common)
        if action.next_node == PLAN:
            return self._plan(action, common)
        if action.next_node == TASK:
            return "Background tasks are not available here. Use a tool, a plan or final_response."
        complaint = self._faults(action)
        if complaint is not None:
            return complaint
        spec = self._specs[action.next_node]
        return Calls(node=spec.name, calls=((spec.name, action.args),), **common)

    def _plan(self, action: PlannerAction, common: dict[str, Any]) -> Decision | str:
        """All steps are checked first: one wrong step rejects the whole plan, and nothing runs (ACTIONS 5)."""
        complaints_ = check_plan(action.args, self._specs)
        if complaints_:
            return " ".join(complaint.line for complaint in complaints_[:_MAX_COMPLAINTS])
        calls = tuple((self._specs[step["node"]].name, dict(step.get("args") or {})) for step in action.args["steps"])
        join = read_join(action.args)
        if isinstance(join, Join):
            wrong = check_join(join, self._specs)
            join = wrong or join.model_copy(update={"node": self._specs[join.node].name})
        if isinstance(join, JoinInvalid):
            return Calls(node=PLAN, calls=calls, note=join.line, **common)
        return Calls(node=PLAN, calls=calls, join=join, **common)

    def _faults(self, action: PlannerAction) -> str | None:
        spec = self._specs.get(action.next_node)
        if spec is None:
            known = ", ".join(sorted(self._names)) or "none"
            return f"There is no tool {action.next_node[:80]!r}. The tools are: {known}."
        try:
            faults = complaints(action.args, spec.input_schema)
        except InvalidSchema as error:
            return f"The tool {action.next_node!r} cannot be used: its input schema is invalid ({error})."
        if not faults:
            return None
        return f"The arguments of {action.next_node!r} do not fit its schema: {'; '.join(faults)}."

    def _invalid(self, reply: Reply, normalized: Normalized, complaint: str) -> Invalid:
        return Invalid(
            complaint=complaint,
            reply=reply.text,
            salvage=self._salvage(reply, normalized),
            usage=reply.usage,
            reasoning=reply.reasoning,
        )

    def _salvage(self, reply: Reply, normalized: Normalized) -> Decision | None:
        """What to make of the reply in the end: a valid alternate, else its text as the answer if it is not a broken action (ACTIONS 4)."""
        common: dict[str, Any] = {
            "usage": reply.usage,
            "reasoning": reply.reasoning,
            "warnings": ("the model's reply was repaired by the runtime",),
        }
        for alternate in normalized.alternates:
            decision = self._decide(alternate, common)
            if not isinstance(decision, str):
                return decision
        text = reply.text.strip()
        if normalized.error is not None and text and "{" not in text:
            return Final(args={"answer": text}, **common)
        return None


class TextReading(ReactReading):
    """A reply that is the text of an answer, asked for alone. A model that answers with an action again is read as one."""

    def __init__(self, specs: Mapping[str, ToolSpec], action_format: ActionFormat, args: Mapping[str, Any]) -> None:
        super().__init__(specs, action_format)
        self._args = args
        self._plain: bool | None = None
        self._text: list[str] = []

    @property
    def shown(self) -> str:
        """What the user has seen of this reply."""
        return "".join(self._text) if self._plain else super().shown

    def feed(self, text: str) -> str:
        """Take in a piece of the reply; return what of the answer may be shown."""
        if self._plain is None:
            text = text.lstrip()
            if text:
                self._plain = text[0] not in "{`"
        if not self._plain:
            return super().feed(text)
        self._text.append(text)
        return text

    def decide(self, reply: Reply) -> Decision:
        """Whatever came, the run ends: with the text, with the answer of an action, or with what the run has."""
        text = self.shown if self._plain else ""
        warnings: tuple[str, ...] = ()
        if not self._plain:
            decision = super().decide(reply)
            if isinstance(decision, Final) and decision.has_text:
                text, warnings = str(decision.args["answer"]), decision.warnings
        args = {**self._args, "answer": text} if text.strip() else dict(self._args)
        return Final(args=args, usage=reply.usage, reasoning=reply.reasoning, warnings=warnings)
