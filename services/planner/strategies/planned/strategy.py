"""The strategy `planned`: PLAN, EXECUTE, RESPOND.

The first request asks for a plan, or for the answer where no tool is needed. The calls of the plan are made one after
another without the model (`execution`). The second request asks for the answer.

Rule 1: the order of a prompt is skills, the agent's own prompt, how to plan, earlier turns, the question. The examples
use tool names of no catalogue.
Rule 2: the request for the answer has all messages of the request for the plan, the plan as the model's own reply, and
one message of the user with what came of it. No tool is offered with it.
Rule 3: of a result the model reads what is not hidden from it, the tool's text, and the preview of an artifact.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from contracts.runs.decisions import DIRECT_RESPONSE, TOOL_CALLS, Plan
from contracts.runs.events import ActionTransport, Asked, Observed, RunEvent, RunStarted, Step
from contracts.runs.inbox import TimerFired
from contracts.runs.requests import RunLimits
from contracts.tools.messages import ToolSpec
from runwire.plans import PlanBounds, error_line
from services.planner.agents import Agent
from services.planner.conversation import texts
from services.planner.conversation.catalogue import render_catalogue, shown_name
from services.planner.conversation.encoding import compact
from services.planner.conversation.messages import Message, as_data, says, system
from services.planner.conversation.rendering import JsonActions
from services.planner.models.types import Facts, ModelRequest
from services.planner.run.commands import Command, Handling, Rules
from services.planner.run.state.history import Decided, Executed, Item
from services.planner.run.state.run import Event, Run
from services.planner.run.turn.decide import step_of
from services.planner.run.turn.decision import OwnDecision
from services.planner.strategies.base import AskingStrategy, Prefix, Reading
from services.planner.strategies.planned import execution
from services.planner.strategies.planned.execution import PLANNING, call_id, outline
from services.planner.strategies.planned.reading import AnswerReading, PlanReading

IDENTITY = """\
You are the planner of an agent. You answer the user's question in at most two replies: the first is a plan, the tools \
carry it out, and the second is the answer, from what they returned. There is no second plan."""

_FORM = """\
- To answer directly, "type" is "direct_response" and "content" is the whole answer, addressed to the user and in the \
user's language. Do so where no tool is needed, or none fits: then say what is missing. Optional beside it, only where \
they add something: "requires_followup" (true where the user has to reply), "suggested_actions" (list of {"action_id", \
"label", "params"}), "language", "route".
- To call tools, "type" is "tool_calls", "reasoning" says in one or two sentences why, and "calls" lists the calls in \
their order: {"tool_name": …, "arguments": …}. Give every required argument, and only those that the tool's schema \
lists. Never make up a value that you do not know."""

NATIVE_OUTPUT = f"""\
# Output
Call the function `__planning__` once, and write nothing beside it.
{_FORM}"""

JSON_OUTPUT = f"""\
# Output
Reply with exactly one JSON object and nothing beside it: no prose before or after, no code fence, no comments.
{_FORM}
{{"type": "direct_response", "content": "Our offices are closed on Sundays."}}
{{"type": "tool_calls", "reasoning": "The invoice needs the id of the order.", "calls": [{{"tool_name": "find_order", \
"arguments": {{"customer": "ACME"}}}}, {{"tool_name": "make_invoice", "arguments": {{"order_id": \
"$0.output.order_id"}}}}]}}"""

TEMPLATES = """\
# Results of earlier calls
- The calls run one after another. An argument, or a value at any depth in it, may be a template: the whole string \
"$N.output.field" stands for a field of the result of call N. Calls are counted from 0; only earlier ones can be named.
- The path goes on with dots: "$0.output.order.lines.0.price"; a number picks an item of a list. Only fields that the \
"result" of the tool in the catalogue declares can be named, and their type must fit the argument.
- A template inside a longer text is not replaced. A plan with a wrong template is rejected, and nothing of it runs.
- The first call that fails ends the plan."""

DESCRIPTION = """\
Plan the reply: answer directly, or list the tools to call. The arguments of a call may take a value from the result \
of an earlier one: the whole string "$N.output.field", for example "$0.output.order_id", where N counts the calls from \
0. Only earlier calls can be named, and only as the whole string."""

NO_TOOLS = "There are no tools: answer directly, from what you know, and say so where you cannot know."

DIRECT_ONLY = "No tool can be called any more: {because}. Answer directly, and say in the answer what is missing."

PLAN_AGAIN = """\
The user has added to the question since. Plan anew, as described under "Output", for what is still to be done; what \
earlier calls returned cannot be named in templates."""

EXECUTED = "# The plan was executed\nAll calls have ended."

HALTED = "# The plan was halted\nA call failed or the plan was stopped: {reason}\nLater calls were not executed."

REJECTED = "# The plan was rejected\nIt has errors, so no call was executed:"

ANSWER_NOW = """\
Write the answer to the user's question now, from what stands above: as plain text or Markdown, addressed to the user \
and in the user's language. No JSON, no plan, and no call of a tool: none can be called in this reply. Where something \
is missing or has failed, say so plainly. Refer to artifacts by their id, and never rebuild or invent their content. \
Only where the user has to reply, or a field adds something, write one JSON object instead, with the answer as its \
"content": {"type": "direct_response", "content": "Which order do you mean?", "requires_followup": true}."""

SHORTENED = "(shortened: {characters:,} characters in all)"


def limits_section(limits: RunLimits, max_calls: int) -> str:
    """Return the section on the limits of the run."""
    calls = max_calls if limits.max_tool_calls is None else min(max_calls, limits.max_tool_calls)
    lines = [f"- at most {calls} calls in the plan"]
    if limits.deadline_s is not None:
        lines.append(f"- {limits.deadline_s:g} seconds from the question to the answer")
    return "\n".join(["# Limits", *lines])


_BESIDE = {
    "requires_followup": {"type": "boolean"},
    "suggested_actions": {"type": "array", "items": {"type": "object"}},
    "language": {"type": "string"},
    "route": {"type": "string"},
}
"""What may stand beside the content of an answer."""
MAX_RESULT_CHARACTERS = 16_000
MAX_ALL_RESULTS_CHARACTERS = 96_000
"""Of all results together. Each has an equal share, and `MAX_RESULT_CHARACTERS` at most."""
MIN_RESULT_CHARACTERS = 500
MAX_PLAN_CHARACTERS = 16_000
"""Of the model's own plan as JSON. Of a longer one, its outline is shown."""


def system_message(
    agent: Agent, tools: Sequence[ToolSpec], *, limits: RunLimits, transport: ActionTransport, max_calls: int
) -> Message:
    """Render what stays the same in a run."""
    skills = [f"- {skill.strip()}" for skill in agent.skills]
    prompt = agent.system_prompt.strip()
    sections = [
        "\n".join(["# Skills", *skills]) if skills else "",
        f"# Guidance\n{prompt}" if prompt else "",
        IDENTITY,
        NATIVE_OUTPUT if transport == "tools" else JSON_OUTPUT,
        TEMPLATES if tools else "",
        texts.DATA,
        render_catalogue(tools, with_results=True) if tools else f"# Tools\n{NO_TOOLS}",
        limits_section(limits, max_calls),
    ]
    return system("\n\n".join(filter(None, sections)))


def planning_function(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Return the function `__planning__` of one request, in the form of OpenAI's `tools`.

    Its root has no combinators, which one provider refuses. What each type of plan needs is checked in the reply.
    """
    names = [shown_name(tool.name) for tool in tools]
    call = {
        "type": "object",
        "required": ["tool_name", "arguments"],
        "properties": {"tool_name": {"type": "string", "enum": names}, "arguments": {"type": "object"}},
    }
    of_calls = {"reasoning": {"type": "string"}, "calls": {"type": "array", "minItems": 1, "items": call}}
    parameters = {
        "type": "object",
        "required": ["type"],
        "additionalProperties": False,
        "properties": {
            "type": {"type": "string", "enum": [DIRECT_RESPONSE, TOOL_CALLS] if names else [DIRECT_RESPONSE]},
            "content": {"type": "string"},
            **_BESIDE,
            **(of_calls if names else {}),
        },
    }
    function = {"name": PLANNING, "description": DESCRIPTION, "parameters": parameters}
    return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class PlanReplies(JsonActions):
    """The dialect of plans: an answer is plain text."""

    complaint = "{reason}\nWrite a better answer."

    def decision(self, step: Step) -> Message:
        """Render an answer."""
        return says("assistant", step.answer or "")

    def executed(self, item: Executed) -> list[Message]:
        """Render a plan, and what came of it."""
        if (plan := item.step.plan) is None:
            return []
        text = compact({"type": TOOL_CALLS, **plan.model_dump(mode="json")})
        text = text if len(text) <= MAX_PLAN_CHARACTERS else compact({"type": TOOL_CALLS, **outline(plan)})
        reply = says("assistant", text)
        if item.end is None:
            lines = [f"- {error_line(error, plan.calls)}" for error in item.step.errors]
            lines += [f"- and {item.step.errors_left_out} more errors"] if item.step.errors_left_out else []
            return [reply, says("user", "\n".join([REJECTED, *map(_one_line, lines)]))]
        halted = item.end.halt_reason is not None
        head = HALTED.format(reason=_one_line(item.end.halt_reason or "")) if halted else EXECUTED
        note = [item.end.note] if item.end.note else []
        return [reply, says("user", "\n".join([head, "<results>", *_results(item, plan), "</results>", *note]))]


def _one_line(text: str) -> str:
    """Return a text as one line in which no marker can be closed."""
    return " ".join(text.split()).replace("</", "<\\/")


def _results(item: Executed, plan: Plan) -> list[str]:
    """Return a line for each call of the plan, and a second one with the result of each that was executed."""
    by_id = {observed.call_id: observed for observed in item.observed}
    room = min(MAX_RESULT_CHARACTERS, max(MIN_RESULT_CHARACTERS, MAX_ALL_RESULTS_CHARACTERS // max(1, len(by_id))))
    lines = []
    for index, call in enumerate(plan.calls):
        observed = by_id.get(call_id(item.step, index))
        status = "NOT EXECUTED" if observed is None else "SUCCESS" if observed.status == "succeeded" else "FAILED"
        lines.append(f"{index + 1}. {shown_name(call.tool_name)} - {status}")
        if observed is not None:
            text = as_data(_result(observed))
            shortened = f"{text[:room]}… {SHORTENED.format(characters=len(text))}"
            lines.append(text if len(text) <= room else shortened)
    return lines


def _result(observed: Observed) -> dict[str, Any]:
    if observed.status == "failed":
        fault = observed.failure
        shown: dict[str, Any] = {"error": fault.code, "reason": fault.reason} if fault is not None else {}
        return shown if observed.observation is None else {**shown, "output": observed.observation}
    content = {"content": observed.content} if observed.content is not None else {}
    output = {} if observed.content is not None and observed.observation is None else {"output": observed.observation}
    responded = observed.responded
    if responded is None or responded.preview is None:
        return {**content, **output}
    preview = responded.preview.model_dump(mode="json", exclude_defaults=True)
    return {**content, **output, "artifact": {"artifact_id": responded.artifact_id, **preview}}


_STEPS_OF_A_PLAN = 2


class Planned(AskingStrategy):
    """Asks for one plan, and for the answer from its results."""

    transport = "tools"
    replies_hold_warnings = False

    def __init__(self, bounds: PlanBounds, **asking: Any) -> None:
        super().__init__(**asking)
        self._bounds = bounds

    def dialect(self, started: RunStarted) -> PlanReplies:
        """Return the dialect of plans."""
        del started
        return PlanReplies()

    def fold(self, run: Run, event: RunEvent) -> execution.PlannedState:
        """Return the plan after an event."""
        state = execution.state_of(run)
        match event:
            case RunStarted():
                return execution.PlannedState()
            case Asked() if len(run.inputs.read) > state.inputs_read:
                return execution.PlannedState(inputs_read=len(run.inputs.read))
            case Step(status="started", plan=Plan()):
                return replace(state, plan=execution.ActivePlan(event))
            case Step(errors=[_, *_]):
                return replace(state, plan=execution.ActivePlan(event, has_ended=True))
            case Step(node=execution.EXECUTE, status="started") if state.plan is not None:
                return replace(state, plan=replace(state.plan, has_begun=True))
            case Step(node=execution.EXECUTE) if state.plan is not None:
                is_late = event.deadline_at is not None
                ended = replace(state.plan, has_ended=True, is_late=is_late, halt_reason=event.halt_reason)
                return replace(state, plan=replace(ended, ended_as=tuple(event.statuses)))
            case _:
                return state

    def view(self, run: Run, step: Step) -> Item | None:
        """Return a plan with what came of it, or an answer."""
        plan = execution.state_of(run).plan
        if step.errors:
            return Executed(step)
        if step.node == execution.EXECUTE and plan is not None:
            return None if step.status == "started" else Executed(plan.step, step, tuple(run.observed.values()))
        return Decided(step) if step.status == "started" and step.answer is not None else None

    def on_step_ended(
        self, run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()
    ) -> list[Event]:
        """Begin a plan that waited for a top-up; else ask the model for a plan, or for the answer."""
        plan = execution.state_of(run).plan
        if plan is not None and not plan.has_ended and not run.inputs.unread:
            return execution.begin(run, handling, plan)
        return super().on_step_ended(run, handling, rules, observed)

    def on_decision(
        self, run: Run, handling: Handling, asked: Asked, decision: OwnDecision, rules: Rules
    ) -> list[Event]:
        """Return the first call of a plan, or the request for the answer."""
        assert isinstance(decision, execution.Planned)  # noqa: S101, the only decision of its own that it reads
        return execution.decided(run, handling, step_of(asked, decision, execution.PLAN, "started"), decision, rules)

    def on_outcome(
        self, run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()
    ) -> list[Event] | None:
        """Return the next call of the plan, or the end of its execution."""
        plan = execution.state_of(run).plan
        if plan is None or run.step is None or run.step.node != execution.EXECUTE:
            return None
        return execution.after_call(run, handling, plan, rules, observed)

    def on_deadline(self, run: Run, handling: Handling, timer: TimerFired) -> Command | None:
        """Halt the plan, so that the model answers from what there is."""
        plan = execution.state_of(run).plan
        return None if plan is None else execution.at_deadline(run, handling, plan, timer)

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build the request for a plan, or for the answer."""
        started, is_native = run.opened, run.opened.action_transport == "tools"

        def render() -> Prefix:
            prefix = system_message(
                agent,
                tools,
                limits=started.limits,
                transport=started.action_transport,
                max_calls=self._bounds.max_calls,
            )
            return prefix, [planning_function(tools)] if is_native else []

        key = (tuple(started.tools.values()), started.request.agent, started.limits, started.action_transport)
        prefix, functions = self._prefix((*key, len(tools)), render)
        facts = self._facts(run, tools, stage=execution.state_of(run).stage)
        asks_plan = facts.stage == execution.PLAN and not facts.text_alone
        return self._request(
            run,
            facts,
            prefix,
            self._notes(run, facts),
            functions=functions if asks_plan and is_native else None,
            must_call=True,
            is_json=asks_plan and not is_native,
        )

    def read(self, run: Run, tools: Sequence[ToolSpec]) -> Reading:
        """Start reading a reply."""
        stage, transport = execution.state_of(run).stage, run.opened.action_transport
        if stage == execution.RESPOND or run.final_args is not None:
            return AnswerReading(run.final_args or {}, stage, **self._of_thoughts(run))
        specs = {shown_name(spec.name): spec for spec in tools}
        return PlanReading(specs, transport=transport, bounds=self._bounds, **self._of_thoughts(run))

    def _notes(self, run: Run, facts: Facts) -> list[Message]:
        """Return the notes of this turn: what the request asks for, and replies that were not accepted."""
        rejections = self._renderer.rejections(run)
        if facts.stage == execution.RESPOND:
            return [says("user", ANSWER_NOW), *rejections]
        notes = [says("user", PLAN_AGAIN)] if run.turn > 1 else []
        if facts.steps_left < _STEPS_OF_A_PLAN or facts.tool_calls_left == 0:
            because = "this is your last reply" if facts.steps_left < _STEPS_OF_A_PLAN else "no tool call is left"
            notes.append(says("user", DIRECT_ONLY.format(because=because)))
        return [*notes, *rejections]
