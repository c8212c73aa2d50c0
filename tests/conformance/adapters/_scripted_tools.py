"""The tools of a vector: the k-th call of any of them behaves as its k-th behaviour says.

A behaviour is a result of MCP, or says what goes wrong: `timeout`, `no_responders`, or an error of the transport under
one of `FAILURES`. Its value, or `code` in it, may name one of the first two.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from tests.support.run_services import Handler, Replied

FAILURES = ("transport_error", "error", "exception", "throws", "raises", "failure", "cancelled")
TIMEOUTS = frozenset({"timeout", "timedout", "timeoutms", "hang", "hangs"})
NOBODY = frozenset({"noresponders", "noservice"})
TIMEOUT_S = 0.3
Tools = dict[str, tuple[ToolSpec, Handler | None]]


def scripted_tools(given: dict[str, Any], calls: Sequence[Any], made: list[dict[str, Any]]) -> Tools:
    """Return the tools by name, which note in `made` how they are called. Nobody serves one without a handler."""
    behaviours = given.get("tool_behaviour") or []
    planned = [(call["tool_name"], behaviour) for call, behaviour in zip(calls, behaviours, strict=False)]
    late = {name for name, behaviour in planned if goes_wrong(behaviour) == "timeout"}
    absent = {name for name, behaviour in planned if goes_wrong(behaviour) == "no_responders"}
    rest = iter(behaviours)
    tools: Tools = {}
    for tool in given["tools"]:
        spec = spec_of(tool)
        if spec.name in late:
            spec = spec.model_copy(update={"timeout_s": TIMEOUT_S})
        tools[spec.name] = (spec, None if spec.name in absent else _handler(spec, rest, made))
    return tools


def spec_of(tool: dict[str, Any]) -> ToolSpec:
    """Return a tool whose schemas a vector names as MCP does."""
    return ToolSpec(
        name=tool["name"],
        input_schema=tool.get("inputSchema") or {"type": "object"},
        output_schema=tool.get("outputSchema"),
    )


def goes_wrong(behaviour: Any) -> str | None:
    """Return `timeout` or `no_responders` if a behaviour is one of these, `failure` if it is another error, or None."""
    if not isinstance(behaviour, dict):
        return None
    said = {key: value for key, value in behaviour.items() if value not in (None, False)}
    words = {_word(key) for key in said}
    failures = [said[key] for key in FAILURES if key in said]
    for failure in failures:
        parts = [failure, *failure.values()] if isinstance(failure, dict) else [failure]
        words |= {_word(part) for part in parts if isinstance(part, str)}
    if words & TIMEOUTS:
        return "timeout"
    if words & NOBODY:
        return "no_responders"
    return "failure" if failures or said.get("isError") else None


def _word(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _handler(spec: ToolSpec, behaviours: Iterator[Any], made: list[dict[str, Any]]) -> Handler:
    async def called(args: dict[str, Any]) -> Any:
        made.append({"tool": spec.name, "arguments": args})
        behaviour: Any = next(behaviours, {"structuredContent": {}})
        match goes_wrong(behaviour):
            case None:
                return Replied(_replies(behaviour, spec))
            case "timeout":
                await asyncio.sleep(TIMEOUT_S * 10)
        return Fault(code="tool_error", reason=_reason(behaviour))

    return called


def _replies(behaviour: Any, spec: ToolSpec) -> list[tuple[str, bytes]]:
    """Return the replies to one call. A result of MCP without text and value is null where no schema wants more."""
    result = behaviour or {}
    text = next((part["text"] for part in result.get("content") or [] if part.get("type") == "text"), "")
    value = b"null" if spec.output_schema is None and not text and behaviour is not None else b""
    if "structuredContent" in result:
        value = json.dumps(result["structuredContent"]).encode()
    return [("content", text.encode()), ("result", value)] if text else [("result", value)]


def _reason(behaviour: dict[str, Any]) -> str:
    """Return the message of an error: of a result of MCP the first part of its content, if that is a text."""
    if behaviour.get("isError"):
        first: dict[str, Any] = next(iter(behaviour.get("content") or []), {})
        return (first.get("text") if first.get("type") == "text" else None) or "Unknown error"
    found = next((behaviour[key] for key in FAILURES if key in behaviour), "Unknown error")
    found = found.get("message", found) if isinstance(found, dict) else found
    return found if isinstance(found, str) and found else json.dumps(found)
