"""The default strategy: one action per turn (docs/planner.md#one-action-two-fields), as JSON or as native tool calls.

The prefix of the prompt (agent, format, catalogue) is rendered once for all runs that share it, not per step. Native
calls are converted to the equivalent JSON action while they stream.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from contracts.runs.step_events import ReplyForm
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.conversation import native
from services.planner.conversation.catalogue import shown_name, with_agents
from services.planner.conversation.messages import budget_notes, system_message
from services.planner.models.types import CallPiece, ModelRequest, Reply
from services.planner.replies.plain_text import TextStream, is_action, read_plain
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Decision, Invalid
from services.planner.strategies.base import AskingStrategy, Prefix
from services.planner.strategies.react.reading import ReactReading, TextReading

NOTHING_SAID = "The reply holds a thought, and no answer behind it: answer the user, or call a function."


class NativeReading(ReactReading):
    """A reply of native calls. Only a first call of `final_response` is streamed, through the answer stream.

    Text without calls is the answer, and is streamed as it comes. Text beside calls is the model's reasoning: what was
    shown of it is replaced by what the run shows next.
    """

    _expects_json = False
    _text: TextStream
    _first: int | None = None
    _name = ""
    _begun = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begin_as_text(may_announce=True)

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

    def decide(self, reply: Reply) -> Decision:
        """Return the decision of the complete reply."""
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
        return self._answer(reply, plain, {"answer": plain.text}, form=ReplyForm(form="text"))


class NativeTextReading(TextReading):
    """The answer text that was asked for alone. If the model calls a function instead, the call is read."""

    def decide(self, reply: Reply) -> Decision:
        """Return a Final for any reply."""
        if reply.tool_calls and not reply.text.strip():
            reply = replace(reply, text=native.action_of(reply.tool_calls)[0])
        return super().decide(reply)


class React(AskingStrategy):
    """Asks for one action per turn. It keeps nothing of a run but its conversation."""

    may_spawn = True

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build a request: the stable prefix, the history, and the notes of this turn (repairs, budgets)."""
        started = run.opened
        is_native, tasks = started.action_transport == "tools", started.tasks is not None
        tools = with_agents(tools, started.tasks)

        def render() -> Prefix:
            system = system_message(
                agent,
                tools,
                limits=started.limits,
                action_format=started.action_format,
                transport=started.action_transport,
                tasks=tasks,
            )
            return system, native.functions(tools, tasks=tasks) if is_native else []

        key = (tuple(started.tools.values()), started.request.agent, started.limits, started.action_format)
        asked = tuple(started.tasks.agents.items()) if started.tasks is not None else ()
        system, functions = self._prefix((*key, started.action_transport, len(tools), tasks, asked), render)
        legacy = not is_native and started.action_format == "legacy"
        facts = self._facts(run, tools, tasks_allowed=tasks, legacy=legacy)
        notes = self._renderer.rejections(run)
        if not facts.text_alone:
            notes += budget_notes(steps_left=facts.steps_left, tool_calls_left=facts.tool_calls_left, legacy=legacy)
        return self._request(
            run,
            facts,
            system,
            notes,
            functions=self._callable(run, functions) if is_native else None,
            must_call=not facts.text_alone,
            is_json=not is_native and not facts.text_alone,
        )

    def read(self, run: Run, tools: Sequence[ToolSpec]) -> ReactReading:
        """Start reading a reply: an action, or the answer text that was asked for alone."""
        started = run.opened
        tools = with_agents(tools, started.tasks)
        specs = {shown_name(spec.name): spec for spec in tools}
        is_native = started.action_transport == "tools"
        options: dict[str, Any] = {
            "action_format": "auto" if is_native else started.action_format,
            "tasks": started.tasks is not None,
            **self._of_thoughts(run),
        }
        if run.final_args is not None:
            return (NativeTextReading if is_native else TextReading)(specs, run.final_args, **options)
        return (NativeReading if is_native else ReactReading)(specs, **options)
