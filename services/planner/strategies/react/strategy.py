"""The default strategy: one action per turn (docs/planner.md#one-action-two-fields), as JSON or as native tool calls.

The prefix of the prompt (agent, format, catalogue) is rendered once for all runs that share it, not per step.
"""

from collections.abc import Sequence
from typing import Any

from contracts.runs.events import ActionFormat, Observed
from contracts.tools.messages import ToolSpec
from services.planner import conversation
from services.planner.agents import Agent
from services.planner.conversation.rendering import Renderer
from services.planner.models.types import Facts, ModelRequest
from services.planner.run.commands import Handling, Rules
from services.planner.run.state.history import Length
from services.planner.run.state.run import Event, Run
from services.planner.run.turn import asking, budgets
from services.planner.strategies.base import Prefix, Prefixes, may_call_demo_model
from services.planner.strategies.react.native_reading import NativeReading, NativeTextReading
from services.planner.strategies.react.reading import ReactReading, TextReading
from services.shared.tools.builtin import READ_ARTIFACT, READ_ARTIFACT_SPEC


class React:
    """Asks for one action per turn."""

    def __init__(self, *, native_reasoning: bool, idle_s: float, total_s: float) -> None:
        self._native_reasoning = native_reasoning
        self._idle_s = idle_s
        self._total_s = total_s
        self._renderer = Renderer(may_call_demo_model)
        self._prefixes = Prefixes()

    def next(self, run: Run, handling: Handling, rules: Rules, _observed: Sequence[Observed] = ()) -> list[Event]:
        """Ask for the next action: at the opening, and after each step."""
        return asking.ask_next(run, handling, rules)

    def length(self, run: Run) -> Length:
        """Measure the conversation, without the system message."""
        return self._renderer.length(run)

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build a request: the stable prefix, the history, and the notes of this turn (repairs, budgets)."""
        assert run.started is not None  # noqa: S101, `asked` follows `run_started` in every log
        native = run.started.action_transport == "tools"
        system, functions = self._prefix(run, tools, agent)
        if native and run.collected.readable and READ_ARTIFACT not in run.started.tools:
            # A model can only call listed functions. Appended last, so that the prefix before it stays unchanged.
            functions = [*functions, *conversation.native.functions([READ_ARTIFACT_SPEC])[:1]]
        effort = run.effort if self._native_reasoning else None
        # Some providers refuse a forced call with reasoning. A request for an answer's text alone must not force one.
        forced = effort is None and run.final_args is None
        facts = self._facts(run, tools)
        notes = self._renderer.rejections(run)
        if not facts.text_alone:
            notes += conversation.budget_notes(
                steps_left=facts.steps_left, tool_calls_left=facts.tool_calls_left, legacy=facts.legacy
            )
        return ModelRequest(
            model=(run.asked.model if run.asked else None) or run.model,
            messages=self._renderer.request(run, system, notes),
            reasoning_effort=effort,
            response_format={"type": "json_object"} if not native and run.final_args is None else None,
            tools=functions if native else None,
            tool_choice=("required" if forced else "auto") if native else None,
            timeout_s=self._idle_s,
            total_s=self._total_s,
            facts=facts,
        )

    def reading(self, run: Run, tools: Sequence[ToolSpec]) -> ReactReading:
        """Start reading a reply: an action, or the answer text that was asked for alone."""
        assert run.started is not None  # noqa: S101, see request
        # A tool of the run with this name replaces the built-in one.
        specs = {READ_ARTIFACT: READ_ARTIFACT_SPEC} | {conversation.shown_name(spec.name): spec for spec in tools}
        tasks = run.started.tasks is not None
        native = run.started.action_transport == "tools"
        action_format: ActionFormat = "auto" if native else run.started.action_format
        if run.final_args is not None:
            text_reading = NativeTextReading if native else TextReading
            return text_reading(
                specs, run.final_args, action_format=action_format, native_reasoning=self._native_reasoning, tasks=tasks
            )
        reading = NativeReading if native else ReactReading
        return reading(specs, action_format=action_format, native_reasoning=self._native_reasoning, tasks=tasks)

    def _prefix(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        started = run.started
        assert started is not None  # noqa: S101, see request
        action_format, transport = started.action_format, started.action_transport
        tasks = started.tasks is not None
        key = (
            tuple(started.tools.values()),
            started.request.agent,
            started.limits,
            action_format,
            transport,
            len(tools),
            tasks,
        )

        def render() -> Prefix:
            system = conversation.system_message(
                agent, tools, limits=started.limits, action_format=action_format, transport=transport, tasks=tasks
            )
            return system, conversation.native.functions(tools, tasks=tasks) if transport == "tools" else []

        return self._prefixes.get(key, render)

    @staticmethod
    def _facts(run: Run, tools: Sequence[ToolSpec]) -> Facts:
        assert run.started is not None  # noqa: S101, see request
        return Facts(
            history=run.history.items,
            rejected=tuple(run.rejected),
            tools=tools,
            steps_left=run.limits.max_steps - run.turn + 1,
            tool_calls_left=budgets.tool_calls_left(run),
            text_alone=run.final_args is not None,
            tasks_allowed=run.started.tasks is not None,
            legacy=run.started.action_transport == "json" and run.started.action_format == "legacy",
        )
