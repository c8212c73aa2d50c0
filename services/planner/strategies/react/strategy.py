"""The default strategy: one action per turn (docs/planner.md#one-action-two-fields), as JSON or as native tool calls.

The prefix of the prompt (agent, format, catalogue) is rendered once for all runs that share it, not per step.
"""

from collections.abc import Sequence
from typing import Any

from contracts.runs.events import ActionFormat
from contracts.tools.messages import ToolSpec
from services.planner import conversation
from services.planner.agents import Agent
from services.planner.conversation.task_tools import with_agents
from services.planner.models.types import ModelRequest
from services.planner.run.state.run import Run
from services.planner.strategies.base import AskingStrategy, Prefix
from services.planner.strategies.react.native_reading import NativeReading, NativeTextReading
from services.planner.strategies.react.reading import ReactReading, TextReading
from services.shared.tools.builtin import READ_ARTIFACT, READ_ARTIFACT_SPEC


class React(AskingStrategy):
    """Asks for one action per turn. It keeps nothing of a run but its conversation."""

    may_spawn = True

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build a request: the stable prefix, the history, and the notes of this turn (repairs, budgets)."""
        assert run.started is not None  # noqa: S101, `asked` follows `run_started` in every log
        started = run.started
        native, tasks = started.action_transport == "tools", started.tasks is not None
        tools = with_agents(tools, started.tasks)

        def render() -> Prefix:
            system = conversation.system_message(
                agent,
                tools,
                limits=started.limits,
                action_format=started.action_format,
                transport=started.action_transport,
                tasks=tasks,
            )
            return system, conversation.native.functions(tools, tasks=tasks) if native else []

        key = (tuple(started.tools.values()), started.request.agent, started.limits, started.action_format)
        asked = tuple(started.tasks.agents.items()) if started.tasks is not None else ()
        system, functions = self._prefix((*key, started.action_transport, len(tools), tasks, asked), render)
        if native and run.collected.readable and READ_ARTIFACT not in started.tools:
            # A model can only call listed functions. Appended last, so that the prefix before it stays unchanged.
            functions = [*functions, *conversation.native.functions([READ_ARTIFACT_SPEC])[:1]]
        legacy = not native and started.action_format == "legacy"
        facts = self._facts(run, tools, tasks_allowed=tasks, legacy=legacy)
        notes = self._renderer.rejections(run)
        if not facts.text_alone:
            notes += conversation.budget_notes(
                steps_left=facts.steps_left, tool_calls_left=facts.tool_calls_left, legacy=legacy
            )
        return self._request(
            run,
            facts,
            system,
            notes,
            functions=functions if native else None,
            must_call=not facts.text_alone,
            is_json=not native and not facts.text_alone,
        )

    def read(self, run: Run, tools: Sequence[ToolSpec]) -> ReactReading:
        """Start reading a reply: an action, or the answer text that was asked for alone."""
        assert run.started is not None  # noqa: S101, see request
        tools = with_agents(tools, run.started.tasks)
        # A tool of the run with this name replaces the built-in one.
        specs = {READ_ARTIFACT: READ_ARTIFACT_SPEC} | {conversation.shown_name(spec.name): spec for spec in tools}
        tasks = run.started.tasks is not None
        native = run.started.action_transport == "tools"
        action_format: ActionFormat = "auto" if native else run.started.action_format
        options: dict[str, Any] = {
            "action_format": action_format,
            "native_reasoning": self._native_reasoning,
            "tasks": tasks,
            "habit": self._habit(run),
        }
        if run.final_args is not None:
            return (NativeTextReading if native else TextReading)(specs, run.final_args, **options)
        return (NativeReading if native else ReactReading)(specs, **options)
