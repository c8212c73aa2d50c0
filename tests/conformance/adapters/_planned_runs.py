"""Whole runs of the strategy `planned`: the scripted model gives the plan of a vector, real tools do what it says."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contracts.runs.decisions import PlanError
from contracts.runs.events import Step
from contracts.tools.messages import ToolSpec
from runwire.plans import parse_template
from tests.conformance.compare import assert_same
from tests.support.model_server import Say
from tests.support.run_services import Handler, Story

from ._scripted_tools import Tools, goes_wrong, scripted_tools
from ._whole_run import stack
from .response_markers import texts_in

STAGES = {"plan": "PLAN", "execute": "EXECUTE", "respond": "RESPOND"}
_CALLS_MADE = ("calls_made", "invocations")
_TOOL = ("tool", "tool_name", "name")


async def check_run(vector: dict[str, Any]) -> None:
    """Run a vector with the operation `execute` or `plan_output`, and compare what it expects."""
    given = vector["input"]
    made: list[dict[str, Any]] = []
    reply = reply_of(given)
    calls = _calls_of(given, reply)
    tools = scripted_tools(given, calls, made) if "tools" in given else _guessed_tools(calls)
    story = await stack().tell([reply, Say(text="The answer.")], tools, strategy="planned")
    assert story.end.type == "done"
    expected = _in_our_words(vector["expected"])
    found = _found(story, made, given, expected)
    if not expected.get("content", "an answer").strip():
        del expected["content"]  # The payload of a run without an answer says that there is none.
    if (part := expected.pop("halt_reason_contains", None)) is not None:
        assert part in (found["halt_reason"] or ""), found["halt_reason"]
    if not expected.get("statuses"):  # Of a rejected plan no call is executed: vectors may list none of them, or all.
        found["statuses"] = [status for status in found["statuses"] if found["kind"] != "invalid"]
    known = {name: value for name, value in expected.items() if name in found}
    assert known, f"nothing that is known of a run is expected: {list(expected)}"
    assert_same({name: found[name] for name in known}, known, "the run")


def reply_of(given: dict[str, Any]) -> Say:
    """Return what the model says: a text, native calls of tools, or one plan or several as calls of `__planning__`."""
    reply = given.get("reply")
    said = {**given, **(reply if isinstance(reply, dict) else {"text": reply} if reply is not None else {})}
    plan = said.get("plan", said.get("plans", said.get("planning_calls")))
    if isinstance(plan, str):
        return Say(text=plan)
    if plan is not None:
        several = isinstance(plan, list) and all(isinstance(each, dict) and "type" in each for each in plan)
        return Say(tool_calls=[_call("__planning__", each) for each in (plan if several and plan else [plan])])
    native = said.get("native_calls") or said.get("tool_calls") or []
    text = next((said[key] for key in ("text", "content") if isinstance(said.get(key), str)), "")
    if native or text:
        return Say(text=text, tool_calls=[_native_call(each) for each in native])
    calls = {"type": "tool_calls", "reasoning": said.get("reasoning", ""), "calls": said.get("calls")}
    return Say(tool_calls=[_call("__planning__", calls if "calls" in said else None)])


def _call(name: str, arguments: Any) -> dict[str, str]:
    return {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}


def _native_call(call: dict[str, Any]) -> dict[str, str]:
    call = call.get("function", call)
    return _call(call["name"] if "name" in call else call["tool_name"], call.get("arguments", {}))


def _calls_of(given: dict[str, Any], reply: Say) -> list[dict[str, Any]]:
    """Return the calls that the model plans, as far as they can be read."""
    if "calls" in given:
        return list(given["calls"])
    planned = [json.loads(call["arguments"]) for call in reply.tool_calls if call["name"] == "__planning__"]
    if planned:
        calls = planned[0].get("calls") if isinstance(planned[0], dict) else None
        return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [{"tool_name": call["name"], "arguments": json.loads(call["arguments"])} for call in reply.tool_calls]


def _in_our_words(expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a vector expects, with one name for each thing."""
    words = dict(expected)
    made = next((words.pop(name) for name in _CALLS_MADE if name in words), None)
    if made is not None:
        words["calls_made"] = [{"tool" if key in _TOOL else key: value for key, value in call.items()} for call in made]
    if isinstance(words.get("error"), dict):
        words["error"] = words["error"].get("type")
    return words


def errors_of(errors: Sequence[PlanError], expected: Sequence[Any]) -> list[Any]:
    """Return the errors of a plan as a vector has them: their types, or records, few of which have `tool`."""
    if expected and all(isinstance(error, str) for error in expected):
        return [error.error.type for error in errors]
    found = [error.model_dump() for error in errors]
    if not any("tool" in error["error"] for error in expected):
        for record in found:
            record["error"].pop("tool", None)
    return found


def _found(
    story: Story, made: list[dict[str, Any]], given: Mapping[str, Any], expected: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a vector may expect of a run."""
    steps: list[Step] = story.of("step")
    planned = next((step.plan for step in steps if step.plan is not None), None)
    invalid = next((step for step in steps if step.status == "invalid"), None)
    ended = next((step for step in steps if step.node == "execute" and step.status != "started"), None)
    kind = "invalid" if invalid is not None else "direct_response" if planned is None else "tool_calls"
    calls = planned.calls if planned is not None else []
    return {
        "kind": kind,
        "content": story.end.raw_answer,
        "reasoning": planned.reasoning if planned is not None else None,
        "tool_count": len(calls),
        "tool_names": [call.tool_name for call in calls],
        "error": invalid.errors[0].error.type if invalid is not None else None,
        "errors": errors_of(invalid.errors, expected.get("errors", [])) if invalid is not None else [],
        "stages": list(dict.fromkeys(STAGES[step.node] for step in steps)),
        "ai_calls": stack().requests(),
        "calls_made": [*made, *_unserved(story, made, given)],
        "statuses": ended.statuses if ended is not None else ["not_executed" for _ in calls],
        "halted": ended is not None and ended.halt_reason is not None,
        "halt_reason": ended.halt_reason if ended is not None else None,
    }


def _unserved(story: Story, made: Sequence[Any], given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the call that nobody served: no tool has noted it."""
    called = [call for event in (*story.of("step"), *story.of("called")) for call in event.calls]
    behaviours = given.get("tool_behaviour") or []
    if len(called) == len(made) + 1 <= len(behaviours) and goes_wrong(behaviours[len(made)]) == "no_responders":
        yield {"tool": called[-1].tool, "arguments": called[-1].args}


def _guessed_tools(calls: Sequence[dict[str, Any]]) -> Tools:
    """Return tools for the calls of a plan, whose results hold every field that a template names."""
    results: list[dict[str, Any]] = [{} for _ in calls]
    by_name: dict[str, dict[str, Any]] = {}
    for index, call in enumerate(calls):
        if isinstance(name := call.get("tool_name"), str) and name:
            results[index] = by_name.setdefault(name, results[index])
    for template in filter(None, (parse_template(text) for call in calls for text in texts_in(call.get("arguments")))):
        place = results[template.index] if template.index < len(results) else {}
        for name in template.path[:-1]:
            if not isinstance(place.get(name), dict):
                place[name] = {}
            place = place[name]
        place.setdefault(template.path[-1], "x")
    schemas = {tool: {"type": "object", "properties": dict.fromkeys(by_name[tool], True)} for tool in by_name}
    return {
        tool: (ToolSpec(name=tool, output_schema=schemas[tool]), _giving(result)) for tool, result in by_name.items()
    }


def _giving(result: dict[str, Any]) -> Handler:
    async def give(_: dict[str, Any]) -> Any:
        return result

    return give
