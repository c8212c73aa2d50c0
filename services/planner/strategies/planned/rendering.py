"""Renders the messages of the strategy `planned`: the request for a plan, and what came of it. Pure.

Rule 1: the order is skills, the agent's own prompt, how to plan, earlier turns, the question.
Rule 2: the request for the answer has all messages of the request for the plan, the plan as the model's own reply, and
one message of the user with what came of it. No tool is offered with it.
Rule 3: of a result the model reads what is not hidden from it, the tool's text, and the preview of an artifact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contracts.runs.events import ActionTransport, Observed, Repaired, Step
from contracts.runs.plans import DIRECT_RESPONSE, TOOL_CALLS, Plan
from contracts.runs.requests import RunLimits
from contracts.tools.messages import ToolSpec
from runwire.plans import error_line
from services.planner.agents import Agent
from services.planner.conversation import texts as shared_texts
from services.planner.conversation.catalogue import render_catalogue, shown_name
from services.planner.conversation.encoding import compact
from services.planner.conversation.json_actions import JsonActions
from services.planner.conversation.messages import CACHE_MARK, Message, as_data, rejection, says
from services.planner.run.state.history import Executed
from services.planner.strategies.planned import texts
from services.planner.strategies.planned.state import call_id, outline

PLANNING = "__planning__"
"""The one function that a request for a plan offers."""
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
        texts.IDENTITY,
        texts.NATIVE_OUTPUT if transport == "tools" else texts.JSON_OUTPUT,
        texts.TEMPLATES if tools else "",
        shared_texts.DATA,
        render_catalogue(tools, with_results=True) if tools else f"# Tools\n{texts.NO_TOOLS}",
        texts.limits_section(limits, max_calls),
    ]
    text = "\n\n".join(section for section in sections if section)
    return {"role": "system", "content": [{"type": "text", "text": text, "cache_control": CACHE_MARK}]}


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
    function = {"name": PLANNING, "description": texts.DESCRIPTION, "parameters": parameters}
    return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class PlanReplies(JsonActions):
    """The dialect of plans: an answer is plain text."""

    def decision(self, step: Step) -> Message:
        """Render an answer."""
        return says("assistant", step.answer or "")

    def rejection(self, repaired: Repaired) -> list[Message]:
        """Render an answer that was not accepted, and the complaint about it."""
        return rejection(repaired, "{reason}\nWrite a better answer.")

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
            return [reply, says("user", "\n".join([texts.REJECTED, *map(_one_line, lines)]))]
        halted = item.end.halt_reason is not None
        head = texts.HALTED.format(reason=_one_line(item.end.halt_reason or "")) if halted else texts.EXECUTED
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
            shortened = f"{text[:room]}… {texts.SHORTENED.format(characters=len(text))}"
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
