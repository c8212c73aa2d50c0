"""The strategy `planned`: PLAN, EXECUTE, RESPOND.

The first request asks for a plan, or for the answer where no tool is needed. The calls of the plan are made one after
another without the model (`execution`). The second request asks for the answer.
"""

from collections.abc import Sequence

from contracts.runs.events import Asked, Observed, RunEvent, RunStarted, Step
from contracts.runs.inbox import TimerFired
from contracts.tools.messages import ToolSpec
from runwire.plans import PlanBounds
from services.planner.agents import Agent
from services.planner.conversation.catalogue import shown_name
from services.planner.conversation.messages import Message, says
from services.planner.models import demo
from services.planner.models.types import Facts, ModelRequest
from services.planner.run.commands import Command, Handling, Rules
from services.planner.run.state.history import Item
from services.planner.run.state.run import Event, Run
from services.planner.run.turn.decide import step_of
from services.planner.run.turn.decision import OwnDecision
from services.planner.strategies.base import AskingStrategy, Prefix, Reading
from services.planner.strategies.planned import execution, rendering
from services.planner.strategies.planned import state as states
from services.planner.strategies.planned.reading import AnswerReading, PlanReading

_STEPS_OF_A_PLAN = 2


class Planned(AskingStrategy):
    """Asks for one plan, and for the answer from its results."""

    transport = "tools"

    def __init__(self, *, native_reasoning: bool, idle_s: float, total_s: float, bounds: PlanBounds) -> None:
        super().__init__(native_reasoning=native_reasoning, idle_s=idle_s, total_s=total_s)
        self._bounds = bounds

    def warnings(self, model: str) -> list[str]:
        """Return the warning of the demo model, which has no place for it in a plan."""
        return [demo.WARNING] if model == demo.NAME else []

    def dialect(self, started: RunStarted) -> rendering.PlanReplies:
        """Return the dialect of plans."""
        del started
        return rendering.PlanReplies()

    def fold(self, run: Run, event: RunEvent) -> states.PlannedState:
        """Return the plan after an event."""
        return states.fold(run, event)

    def view(self, run: Run, step: Step) -> Item | None:
        """Return a plan with what came of it, or an answer."""
        return states.view(run, step)

    def on_step_ended(
        self, run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()
    ) -> list[Event]:
        """Begin a plan that waited for a top-up; else ask the model for a plan, or for the answer."""
        plan = states.state_of(run).plan
        if plan is not None and not plan.has_ended and not run.inputs.unread:
            return execution.begin(run, handling, plan)
        return super().on_step_ended(run, handling, rules, observed)

    def on_decision(
        self, run: Run, handling: Handling, asked: Asked, decision: OwnDecision, rules: Rules
    ) -> list[Event]:
        """Return the first call of a plan, or the request for the answer."""
        assert isinstance(decision, states.Planned)  # noqa: S101, the only decision of its own that it reads
        return execution.decided(run, handling, step_of(asked, decision, states.PLAN, "started"), decision, rules)

    def on_outcome(
        self, run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()
    ) -> list[Event] | None:
        """Return the next call of the plan, or the end of its execution."""
        plan = states.state_of(run).plan
        if plan is None or run.step is None or run.step.node != states.EXECUTE:
            return None
        return execution.after_call(run, handling, plan, rules, observed)

    def on_deadline(self, run: Run, handling: Handling, timer: TimerFired) -> Command | None:
        """Halt the plan, so that the model answers from what there is."""
        plan = states.state_of(run).plan
        return None if plan is None else execution.at_deadline(run, handling, plan, timer)

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build the request for a plan, or for the answer."""
        assert run.started is not None  # noqa: S101, `asked` follows `run_started` in every log
        started, is_native = run.started, run.started.action_transport == "tools"

        def render() -> Prefix:
            system = rendering.system_message(
                agent,
                tools,
                limits=started.limits,
                transport=started.action_transport,
                max_calls=self._bounds.max_calls,
            )
            return system, [rendering.planning_function(tools)] if is_native else []

        key = (tuple(started.tools.values()), started.request.agent, started.limits, started.action_transport)
        system, functions = self._prefix((*key, len(tools)), render)
        facts = self._facts(run, tools, stage=states.state_of(run).stage)
        asks_plan = facts.stage == states.PLAN and not facts.text_alone
        return self._request(
            run,
            facts,
            system,
            self._notes(run, facts),
            functions=functions if asks_plan and is_native else None,
            must_call=True,
            is_json=asks_plan and not is_native,
        )

    def read(self, run: Run, tools: Sequence[ToolSpec]) -> Reading:
        """Start reading a reply."""
        assert run.started is not None  # noqa: S101, see request
        stage, habit = states.state_of(run).stage, self._habit(run)
        if stage == states.RESPOND or run.final_args is not None:
            return AnswerReading(run.final_args or {}, stage, native_reasoning=self._native_reasoning, habit=habit)
        return PlanReading(
            {shown_name(spec.name): spec for spec in tools},
            transport=run.started.action_transport,
            bounds=self._bounds,
            native_reasoning=self._native_reasoning,
            habit=habit,
        )

    def _notes(self, run: Run, facts: Facts) -> list[Message]:
        """Return the notes of this turn: what the request asks for, and replies that were not accepted."""
        rejections = self._renderer.rejections(run)
        if facts.stage == states.RESPOND:
            return [says("user", rendering.ANSWER_NOW), *rejections]
        notes = [says("user", rendering.PLAN_AGAIN)] if run.turn > 1 else []
        if facts.steps_left < _STEPS_OF_A_PLAN or facts.tool_calls_left == 0:
            because = "this is your last reply" if facts.steps_left < _STEPS_OF_A_PLAN else "no tool call is left"
            notes.append(says("user", rendering.DIRECT_ONLY.format(because=because)))
        return [*notes, *rejections]
