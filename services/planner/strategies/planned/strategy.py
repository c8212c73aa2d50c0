"""The strategy `planned`: PLAN, EXECUTE, RESPOND.

The first request asks for a plan, or for the answer where no tool is needed. The calls of the plan are made one after
another without the model (`run.plan_execution`). The second request asks for the answer.
"""

from collections.abc import Sequence

from contracts.runs.events import Observed
from contracts.tools.messages import ToolSpec
from runwire.plans import PlanBounds
from services.planner import conversation
from services.planner.agents import Agent
from services.planner.conversation import plan_texts, plans
from services.planner.conversation.messages import Message, says
from services.planner.conversation.rendering import Renderer
from services.planner.models.types import Facts, ModelRequest
from services.planner.run.calls import plan_execution
from services.planner.run.commands import Handling, Rules
from services.planner.run.state.active_plan import PLAN, RESPOND
from services.planner.run.state.history import Length
from services.planner.run.state.run import Event, Run
from services.planner.run.turn import asking, budgets
from services.planner.strategies.base import Prefix, Prefixes, Reading, may_call_demo_model
from services.planner.strategies.planned.reading import AnswerReading, PlanReading

_STEPS_OF_A_PLAN = 2


class Planned:
    """Asks for one plan, and for the answer from its results."""

    def __init__(self, *, native_reasoning: bool, idle_s: float, total_s: float, bounds: PlanBounds) -> None:
        self._native_reasoning = native_reasoning
        self._idle_s = idle_s
        self._total_s = total_s
        self._bounds = bounds
        self._renderer = Renderer(may_call_demo_model)
        self._prefixes = Prefixes()

    def next(self, run: Run, handling: Handling, rules: Rules, _observed: Sequence[Observed] = ()) -> list[Event]:
        """Begin a plan that waited for a top-up; else ask the model for a plan, or for the answer."""
        if run.plan is not None and not run.plan.has_ended and not run.inputs.unread:
            return plan_execution.begin(run, handling, run.plan)
        return asking.ask_next(run, handling, rules)

    def length(self, run: Run) -> Length:
        """Measure the conversation, without the system message."""
        return self._renderer.length(run)

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build the request for a plan, or for the answer."""
        assert run.started is not None  # noqa: S101, `asked` follows `run_started` in every log
        transport = run.started.action_transport
        system, functions = self._prefix(run, tools, agent)
        asks_plan = stage_of(run) == PLAN and run.final_args is None
        effort = run.effort if self._native_reasoning else None
        facts = self._facts(run, tools)
        is_native = asks_plan and transport == "tools"
        return ModelRequest(
            model=(run.asked.model if run.asked else None) or run.model,
            messages=self._renderer.request(run, system, self._notes(run, facts)),
            reasoning_effort=effort,
            response_format={"type": "json_object"} if asks_plan and not is_native else None,
            tools=functions if is_native else None,
            # Some providers refuse a forced call with reasoning.
            tool_choice=("required" if effort is None else "auto") if is_native else None,
            timeout_s=self._idle_s,
            total_s=self._total_s,
            facts=facts,
        )

    def reading(self, run: Run, tools: Sequence[ToolSpec]) -> Reading:
        """Start reading a reply."""
        assert run.started is not None  # noqa: S101, see request
        stage = stage_of(run)
        if stage == RESPOND or run.final_args is not None:
            return AnswerReading(run.final_args or {}, stage, native_reasoning=self._native_reasoning)
        return PlanReading(
            {conversation.shown_name(spec.name): spec for spec in tools},
            transport=run.started.action_transport,
            bounds=self._bounds,
            native_reasoning=self._native_reasoning,
        )

    def _prefix(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> Prefix:
        started = run.started
        assert started is not None  # noqa: S101, see request
        transport = started.action_transport
        key = (tuple(started.tools.values()), started.request.agent, started.limits, transport, len(tools))

        def render() -> Prefix:
            system = plans.system_message(
                agent, tools, limits=started.limits, transport=transport, max_calls=self._bounds.max_calls
            )
            return system, [plans.planning_function(tools)] if transport == "tools" else []

        return self._prefixes.get(key, render)

    def _notes(self, run: Run, facts: Facts) -> list[Message]:
        """Return the notes of this turn: what the request asks for, and replies that were not accepted."""
        rejections = self._renderer.rejections(run)
        if facts.stage == RESPOND:
            return [says("user", plan_texts.ANSWER_NOW), *rejections]
        notes = [says("user", plan_texts.PLAN_AGAIN)] if run.turn > 1 else []
        if facts.steps_left < _STEPS_OF_A_PLAN or facts.tool_calls_left == 0:
            because = "this is your last reply" if facts.steps_left < _STEPS_OF_A_PLAN else "no tool call is left"
            notes.append(says("user", plan_texts.DIRECT_ONLY.format(because=because)))
        return [*notes, *rejections]

    @staticmethod
    def _facts(run: Run, tools: Sequence[ToolSpec]) -> Facts:
        return Facts(
            history=run.history.items,
            rejected=tuple(run.rejected),
            tools=tools,
            steps_left=run.limits.max_steps - run.turn + 1,
            tool_calls_left=budgets.tool_calls_left(run),
            text_alone=run.final_args is not None,
            stage=stage_of(run),
        )


def stage_of(run: Run) -> str:
    """Return what the next request asks for: a plan, or the answer from what came of one."""
    return RESPOND if run.plan is not None and run.plan.has_ended else PLAN
