"""Whole runs of the strategy `planned`: the scripted model gives the plan of a vector, real tools do what it says."""

import json
from collections.abc import Iterator
from typing import Any

from contracts.events import Step
from contracts.faults import Fault
from contracts.tools import ToolSpec
from runwire.plans import parse
from tests.conformance.compare import assert_same
from tests.support.model_server import Say
from tests.support.run_services import Handler, Replied, Story

from ._whole_run import stack

STAGES = {"plan": "PLAN", "execute": "EXECUTE", "respond": "RESPOND"}


async def check_run(vector: dict[str, Any]) -> None:
    """Run a vector with the operation `execute` or `plan_output`, and compare what it expects."""
    given = vector["input"]
    made: list[dict[str, Any]] = []
    tools = _tools(given, made) if vector["op"] == "execute" else _guessed_tools(given.get("plan"))
    reply = _reply(given)
    story = await stack().tell([reply, Say(text="The answer.")], tools, strategy="planned")
    assert story.end.type == "done"
    found = _found(story, made)
    expected = dict(vector["expected"])
    if (part := expected.pop("halt_reason_contains", None)) is not None:
        assert part in (found["halt_reason"] or ""), found["halt_reason"]
    known = {name: value for name, value in expected.items() if name in found}
    assert known, f"nothing that is known of a run is expected: {list(expected)}"
    assert_same({name: found[name] for name in known}, known, "the run")


def _reply(given: dict[str, Any]) -> Say:
    if "calls" in given and "plan" not in given:
        given = {"plan": {"type": "tool_calls", "reasoning": "", "calls": given["calls"]}}
    plan = given.get("plan", given.get("text", given.get("reply")))
    if isinstance(plan, str):
        return Say(text=plan)
    return Say(tool_calls=[{"name": "__planning__", "arguments": json.dumps(plan)}])


def _found(story: Story, made: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a vector may expect of a run."""
    steps: list[Step] = story.of("step")
    planned = next((step.plan for step in steps if step.plan is not None), None)
    invalid = next((step for step in steps if step.status == "invalid"), None)
    ended = next((step for step in steps if step.node == "execute" and step.status != "started"), None)
    kind = "invalid" if invalid is not None else "direct_response" if planned is None else "tool_calls"
    return {
        "kind": kind,
        "content": story.end.raw_answer,
        "reasoning": planned.reasoning if planned is not None else None,
        "tool_count": len(planned.calls) if planned is not None else 0,
        "error": invalid.errors[0].error.type if invalid is not None else None,
        "errors": [error.error.type for error in invalid.errors] if invalid is not None else [],
        "stages": list(dict.fromkeys(STAGES[step.node] for step in steps)),
        "ai_calls": stack().requests(),
        "calls_made": made,
        "statuses": ended.statuses if ended is not None else [],
        "halted": ended is not None and ended.halt_reason is not None,
        "halt_reason": ended.halt_reason if ended is not None else None,
    }


def _tools(given: dict[str, Any], made: list[dict[str, Any]]) -> dict[str, tuple[ToolSpec, Handler]]:
    """Return the tools of a vector. The k-th call of any of them behaves as its k-th behaviour says."""
    behaviours = iter(given.get("tool_behaviour") or [])
    return {each["name"]: (_spec(each), _handler(each["name"], behaviours, made)) for each in given["tools"]}


def _spec(tool: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=tool["name"],
        input_schema=tool.get("inputSchema") or {"type": "object"},
        output_schema=tool.get("outputSchema"),
    )


def _handler(name: str, behaviours: Iterator[dict[str, Any]], made: list[dict[str, Any]]) -> Handler:
    async def called(args: dict[str, Any]) -> Any:
        made.append({"tool": name, "arguments": args})
        behaviour: dict[str, Any] = next(behaviours, {"structuredContent": {}})
        text = next((part["text"] for part in behaviour.get("content") or [] if part.get("type") == "text"), None)
        if behaviour.get("isError") or "error" in behaviour or "transport_error" in behaviour:
            said = text or behaviour.get("error") or behaviour.get("transport_error") or "Unknown error"
            return Fault(code="tool_error", reason=said if isinstance(said, str) else json.dumps(said))
        result = json.dumps(behaviour["structuredContent"]).encode() if "structuredContent" in behaviour else b""
        return Replied([*([("content", text.encode())] if text is not None else []), ("result", result)])

    return called


def _guessed_tools(plan: Any) -> dict[str, tuple[ToolSpec, Handler]]:
    """Return tools for the calls of a plan, whose results hold every field that a template names."""
    calls = plan.get("calls") if isinstance(plan, dict) else None
    named = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    results: list[dict[str, Any]] = [{} for _ in named]
    for template in filter(None, (parse(text) for call in named for text in _texts(call.get("arguments")))):
        if template.index < len(results):
            place = results[template.index]
            for name in template.path[:-1]:
                place = place.setdefault(name, {})
            place[template.path[-1]] = "x"
    tools: dict[str, tuple[ToolSpec, Handler]] = {}
    for call, result in zip(named, results, strict=True):
        if isinstance(tool := call.get("tool_name"), str) and tool:
            schema = {"type": "object", "properties": {key: {} for key in result}}
            tools[tool] = (ToolSpec(name=tool, output_schema=schema), _giving(result))
    return tools


def _giving(result: dict[str, Any]) -> Handler:
    async def give(_: dict[str, Any]) -> Any:
        return result

    return give


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
