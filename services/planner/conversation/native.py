"""The dialect of native tool calls (`action_transport: tools`), for models that are better at them than at JSON.

Tools and opcodes are offered as functions, and the model must call one. Its calls are converted to the equivalent JSON
action, so both transports share one parser, one answer stream and one set of events.
"""

from collections.abc import Sequence
from typing import Any

from contracts.runs.actions import FINAL_RESPONSE, PLAN, TASK
from contracts.runs.events import Observed, Repaired, Step
from contracts.tools.messages import ToolSpec
from services.planner.conversation import texts
from services.planner.conversation.catalogue import DESCRIPTION_LIMIT, clean, shown_name
from services.planner.conversation.compaction import OPAQUE
from services.planner.conversation.encoding import compact
from services.planner.conversation.function_schemas import function_schema
from services.planner.conversation.messages import Message, as_data, outcome, rejection
from services.planner.conversation.task_tools import TASK_SCHEMA, task_specs
from services.planner.run.state.history import Executed

_SOURCE = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "url": {"type": "string"}, "snippet": {"type": "string"}},
}
_FINAL = {
    "type": "object",
    "properties": {
        "answer": {
            "type": "string",
            "description": "the whole answer, addressed to the user and in the user's language",
        },
        "confidence": {"type": "number"},
        "sources": {"type": "array", "items": _SOURCE},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "requires_followup": {"type": "boolean"},
        "suggested_actions": {"type": "array", "items": {"type": "object"}},
        "language": {"type": "string"},
        "route": {"type": "string"},
    },
    "required": ["answer"],
}
_NEEDS_APPROVAL = "(A person is asked before it runs, and may refuse or change the call.)"
_CALL = {
    "type": "object",
    "properties": {"node": {"type": "string"}, "args": {"type": "object"}},
    "required": ["node", "args"],
}
_JOIN = {
    "type": "object",
    "properties": {"node": {"type": "string"}, "args": {"type": "object"}, "inject": {"type": "object"}},
    "required": ["node"],
}
_PLAN = {
    "type": "object",
    "properties": {"steps": {"type": "array", "items": _CALL}, "join": _JOIN},
    "required": ["steps"],
}


def functions(tools: Sequence[ToolSpec], *, tasks: bool = False, only_tools: bool = False) -> list[dict[str, Any]]:
    """Return the functions of a request, in the form of OpenAI's `tools`: first the tools, then the opcodes.

    `tasks`: whether the run may start background tasks. `only_tools`: the model answers in text, and calls no opcode
    but that of tasks.
    """
    tools = [*tools, *task_specs(tools)] if tasks else tools
    offered = []
    for tool in tools:
        text = clean(tool.description, DESCRIPTION_LIMIT)
        schema, unsaid = function_schema(tool.input_schema)
        said = (text, unsaid, _NEEDS_APPROVAL if tool.requires_approval else "")
        offered.append((shown_name(tool.name), " ".join(filter(None, said)), schema))
    if not only_tools:
        offered.append((FINAL_RESPONSE, "Answer the user: this ends the run.", _FINAL))
    if tools and not only_tools:
        offered.append((PLAN, "Call several tools at once; `join` names the tool that receives their results.", _PLAN))
    if tasks:
        offered.append((TASK, "Start one background task.", TASK_SCHEMA))
    return [
        {
            "type": "function",
            "function": {"name": name, "description": description, "parameters": schema},
        }
        for name, description, schema in offered
    ]


def action_of(calls: Sequence[dict[str, Any]]) -> tuple[str, list[str]]:
    """Return the JSON action that equals these native calls, and the names of those that are left out.

    Several calls become a plan. A `final_response` among other calls is left out, and so is a plan among several.
    """
    named = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    if len(named) > 1 and named[0][0] != FINAL_RESPONSE:
        steps = [
            f'{{"node": {compact(name)}, "args": {_arguments(text)}}}'
            for name, text in named
            if name not in {FINAL_RESPONSE, PLAN}
        ]
        if len(steps) > 1:
            plan = f'{{"next_node": "{PLAN}", "args": {{"steps": [{", ".join(steps)}]}}}}'
            return plan, [name for name, _ in named if name in {FINAL_RESPONSE, PLAN}]
    name, text = named[0]
    return f"{head_of(name)}{_arguments(text)}}}", [name for name, _ in named[1:]]


def head_of(name: str) -> str:
    """Return the beginning of the JSON action that equals a call of this function, up to its arguments."""
    return f'{{"next_node": {compact(name)}, "args": '


def _arguments(text: str) -> str:
    return text.strip() or "{}"


class NativeTools:
    """Renders decisions as native tool calls, and outcomes as their results."""

    def decision(self, step: Step) -> Message:
        """Render a decision as the native calls that say it."""
        if step.answer is not None:
            return {"role": "assistant", "content": step.answer}
        if step.join is None:
            calls = [(number, shown_name(call.tool), call.args) for number, call in enumerate(step.calls, 1)]
            return _called(calls, step)
        join = {"node": shown_name(step.join.node), "args": step.join.args}
        join |= {} if step.join.inject is None else {"inject": step.join.inject}
        steps = [{"node": shown_name(call.tool), "args": call.args} for call in step.calls]
        return _called([(0, PLAN, {"steps": steps, "join": join})], step)

    def outcomes(self, step: Step, observed: Sequence[Observed], note: str | None = None) -> list[Message]:
        """Render outcomes, one message per native call. A plan with a join was one call, so it has one message."""
        order = {call.call_id: number for number, call in enumerate(step.calls, 1)}
        ordered = sorted(observed, key=lambda each: order.get(each.call_id, len(order) + 1))
        if step.join is not None:
            return [_result(step.step, 0, ordered, note)]
        last = ordered[-1]
        return [
            _result(step.step, order.get(each.call_id, 0), [each], note if each is last else None) for each in ordered
        ]

    def rejection(self, repaired: Repaired) -> list[Message]:
        """Render a reply that was not accepted, and the complaint about it."""
        return rejection(repaired, texts.NATIVE_REPAIR)

    def executed(self, item: Executed) -> list[Message]:
        """Render nothing: see `JsonActions`."""
        del item
        return []


def _called(calls: Sequence[tuple[int, str, dict[str, Any]]], step: Step) -> Message:
    tool_calls = [
        {"id": _call_id(step.step, number), "type": "function", "function": {"name": name, "arguments": compact(args)}}
        for number, name, args in calls
    ]
    opaque = {} if step.opaque is None else {OPAQUE: step.opaque.model_dump(mode="json")}
    return {"role": "assistant", "tool_calls": tool_calls, **opaque}


def _result(step: int, number: int, observed: Sequence[Observed], note: str | None) -> Message:
    lines = [as_data(outcome(each)) for each in observed]
    return {
        "role": "tool",
        "tool_call_id": _call_id(step, number),
        "content": "\n".join(["<results>", *lines, "</results>", *([note] if note else [])]),
    }


def _call_id(step: int, number: int) -> str:
    """Return an id of nine letters and digits, the only form that one provider accepts."""
    return f"c{step % 0x10000:04x}{number % 0x10000:04x}"
