"""Renders the messages of the strategy `planned`: the request for a plan, and what came of it. Pure.

Rule 1: the order is skills, the agent's own prompt, how to plan, earlier turns, the question.
Rule 2: the request for the answer has all messages of the request for the plan, the plan as the model's own reply, and
one message of the user with what came of it. No tool is offered with it.
Rule 3: of a result the model reads what is not hidden from it, the tool's text, and the preview of an artifact.

The texts of the prompt of the strategy `planned`. Their examples use tool names of no catalogue.
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
from services.planner.strategies.planned.state import call_id, outline

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
        IDENTITY,
        NATIVE_OUTPUT if transport == "tools" else JSON_OUTPUT,
        TEMPLATES if tools else "",
        shared_texts.DATA,
        render_catalogue(tools, with_results=True) if tools else f"# Tools\n{NO_TOOLS}",
        limits_section(limits, max_calls),
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
    function = {"name": PLANNING, "description": DESCRIPTION, "parameters": parameters}
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
