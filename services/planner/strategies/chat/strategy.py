"""The strategy `chat`: the model speaks to the user in text, and calls tools in between (docs/chat.md).

One run is one turn of the assistant. Each request to the model is a part of it, until one asks for no tool. What the
model said is shown to it as it said it, hidden blocks included. Without native calls, calls stand as JSON behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contracts.runs.events import Repaired, RunEvent, RunStarted, Step
from contracts.tools.messages import ToolSpec
from services.planner import conversation
from services.planner.agents import Agent
from services.planner.conversation import Dialect, texts
from services.planner.conversation.encoding import compact
from services.planner.conversation.json_actions import JsonActions
from services.planner.conversation.messages import Message, rejection, says
from services.planner.conversation.native import NativeTools
from services.planner.conversation.task_tools import with_agents
from services.planner.models import demo
from services.planner.models.types import ModelRequest
from services.planner.run.state.run import Run
from services.planner.strategies.base import AskingStrategy, Prefix
from services.planner.strategies.chat import prompt
from services.planner.strategies.chat import state as states
from services.planner.strategies.chat.reading import ChatReading
from services.shared.runs.pages.registry import Pages
from services.shared.tools.builtin import GET_PAYLOAD_SPEC, READ_ARTIFACT, READ_ARTIFACT_SPEC

_COMPLAINT = "{reason}\nGo on in the way that is described above. Do not apologise or explain."


class Chat(AskingStrategy):
    """Asks for text and calls, part after part."""

    transport = "tools"
    may_spawn = True

    def __init__(self, pages: Pages, **asking: Any) -> None:
        super().__init__(**asking)
        self._types = pages.payload_types

    def warnings(self, model: str) -> list[str]:
        """Return the warning of the demo model, which has no place for it in a text."""
        return [demo.WARNING] if model == demo.NAME else []

    def dialect(self, started: RunStarted) -> Dialect:
        """Return the dialect of a run."""
        return _ChatNative() if started.action_transport == "tools" else _ChatJson()

    def fold(self, run: Run, event: RunEvent) -> states.ChatState:
        """Return the parts after an event."""
        return states.fold(run, event, tuple(self._types.values()))

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build a request: the stable prefix, the history, and the notes of this turn."""
        assert run.started is not None  # noqa: S101, `asked` follows `run_started` in every log
        started, native = run.started, run.started.action_transport == "tools"
        tools, tasks = with_agents(_of_page(started, tools), started.tasks), started.tasks is not None

        def render() -> Prefix:
            functions = conversation.native.functions(tools, tasks=tasks, only_tools=True)
            further = [texts.TASKS] if tasks else []
            if functions and not native:  # The model is not offered native calls.
                listed = "\n".join(compact(each["function"]) for each in functions)
                further.append(texts.FUNCTIONS.format(functions=listed))
            view, asked_at = started.page_view, started.request.requested_at
            return prompt.system_message(view, tools, agent, self._types, further, asked_at=asked_at), functions

        of_page = started.run_id if started.page_view is not None else ""
        asked = tuple(started.tasks.agents.items()) if started.tasks is not None else ()
        key = (tuple(started.tools.values()), started.request.agent, native, tasks, len(tools), of_page, asked)
        system, functions = self._prefix(key, render)
        if run.collected.readable and READ_ARTIFACT not in started.tools:
            # Appended last, so that the prefix before it stays unchanged.
            functions = [*functions, *conversation.native.functions([READ_ARTIFACT_SPEC], only_tools=True)]
        facts = self._facts(run, tools, tasks_allowed=tasks)
        notes = self._renderer.rejections(run)
        if facts.steps_left == 1 or facts.tool_calls_left == 0:
            because = "this is your last reply" if facts.steps_left == 1 else "no tool call is left"
            notes.append(says("user", prompt.LAST.format(because=because)))
        return self._request(run, facts, system, notes, functions=functions or None if native else None)

    def read(self, run: Run, tools: Sequence[ToolSpec]) -> ChatReading:
        """Start reading a part."""
        assert run.started is not None  # noqa: S101, see request
        tools, state = with_agents(_of_page(run.started, tools), run.started.tasks), states.state_of(run)
        # A tool of the run with this name replaces the built-in one.
        specs = {READ_ARTIFACT: READ_ARTIFACT_SPEC} | {conversation.shown_name(spec.name): spec for spec in tools}
        return ChatReading(
            specs,
            lambda: state.scanner(run),
            lambda response: states.answer_args(state, run, response),
            native_reasoning=self._native_reasoning,
            tasks=run.started.tasks is not None,
            habit=self._habit(run),
        )


def _of_page(started: RunStarted, tools: Sequence[ToolSpec]) -> Sequence[ToolSpec]:
    """Return the tools of the run that its page offers; last the one that reads payloads, where there are any."""
    view = started.page_view
    if view is None:
        return tools
    offered = [tool for tool in tools if view.tools is None or tool.name in view.tools]
    return [*offered, GET_PAYLOAD_SPEC] if view.manifest else offered


class _ChatNative(NativeTools):
    """Text, and native calls."""

    def decision(self, step: Step) -> Message:
        """Render a part of the turn, or an answer of an earlier turn."""
        if not step.calls:
            return says("assistant", _text(step))
        return {**super().decision(step), **({"content": said} if (said := _text(step)) else {})}

    def rejection(self, repaired: Repaired) -> list[Message]:
        """Render a reply that was not accepted, and the complaint about it."""
        return rejection(repaired, _COMPLAINT)


@dataclass(frozen=True, slots=True)
class _ChatJson(JsonActions):
    """Text, and calls as JSON behind it."""

    def decision(self, step: Step) -> Message:
        """Render a part of the turn, or an answer of an earlier turn."""
        text = _text(step)
        if not step.calls:
            return says("assistant", text)
        action = str(JsonActions.decision(self, step)["content"])
        return says("assistant", f"{text}\n{action}" if text else action)

    def rejection(self, repaired: Repaired) -> list[Message]:
        """Render a reply that was not accepted, and the complaint about it."""
        return rejection(repaired, _COMPLAINT)


def _text(step: Step) -> str:
    said = step.said if isinstance(step.said, str) else ""
    return said if said.strip() else step.answer or ""
