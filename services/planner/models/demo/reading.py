"""Reads the question, the tools and the results so far from the prompt.

The markers are those that `services.planner.conversation` writes.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

_TOOLS = re.compile(r"^<tools>\n(.*?)\n</tools>$", re.DOTALL | re.MULTILINE)
_QUESTION = re.compile(r"<question>\n(.*?)\n</question>", re.DOTALL)
_ASKED_ON = re.compile(r"<asked_on>(\d{4}-\d\d-\d\d)")
_CONTEXT = re.compile(r"^<context>\n(.*?)\n</context>", re.DOTALL | re.MULTILINE)
_RESULTS = re.compile(r'^<results step="\d+">\n(.*?)\n</results>', re.DOTALL | re.MULTILINE)
_COMPLAINT = "Your last reply could not be carried out:"
_LAST = "Answer now with final_response"
_ANSWER_ALONE = "Your final response held no answer."
_LEGACY = '"next_node": null'


@dataclass(frozen=True, slots=True)
class Tool:
    """One line of the catalogue."""

    name: str
    description: str
    args: dict[str, Any]
    tags: tuple[str, ...] = ()
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Tried:
    """A tool call and its outcome. `reason` is set if it failed."""

    tool: str
    args: dict[str, Any]
    observation: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a decision. `tried`: the steps so far, each with its calls."""

    question: str
    tools: tuple[Tool, ...] = ()
    asked_on: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    tried: tuple[tuple[Tried, ...], ...] = ()
    must_answer: bool = False
    text_alone: bool = False
    legacy: bool = False
    images: tuple[str, ...] = ()
    """Type and size of each image that came with the question."""


def read(messages: Sequence[dict[str, Any]]) -> Situation:
    """Read a conversation. Without markers, all of it is a question, and there are no tools."""
    said = [(str(message.get("role")), _text(message.get("content"))) for message in messages]
    system = "\n".join(text for role, text in said if role == "system")
    first = next((number for number, (role, _) in enumerate(said) if role == "user"), len(said))
    opening = said[first][1] if first < len(said) else ""
    question = _QUESTION.search(opening)
    asked_on = _ASKED_ON.search(opening, question.end() if question else 0)
    context = _CONTEXT.search(opening, question.end() if question else 0)
    last = said[-1][1] if len(said) > first + 1 else ""
    return Situation(
        question=(question[1] if question else opening).strip(),
        tools=tuple(_tools(system)),
        asked_on=asked_on[1] if asked_on else None,
        context=_object(context[1]) if context else {},
        tried=tuple(_tried(said[first + 1 :])),
        must_answer=_LAST in last,
        text_alone=_ANSWER_ALONE in last,
        legacy=_LEGACY in system,
        images=tuple(
            _images(next((message.get("content") for message in messages if message.get("role") == "user"), None))
        ),
    )


def _images(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, list) else ():
        url = part.get("image_url", {}).get("url", "") if isinstance(part, dict) else ""
        head, _, body = url.partition(";base64,")
        if body:
            yield f"{head.removeprefix('data:')} of {len(body) * 3 // 4 - body[-2:].count('=')} bytes"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or () if isinstance(part, dict))


def _object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _tools(system: str) -> Iterator[Tool]:
    section = _TOOLS.search(system)
    for line in section[1].splitlines() if section else ():
        tool = _object(line)
        if isinstance(tool.get("name"), str):
            yield Tool(
                name=tool["name"],
                description=str(tool.get("description", "")),
                args=tool["args"] if isinstance(tool.get("args"), dict) else {},
                tags=tuple(str(tag) for tag in tool.get("tags", ())),
                writes=tool.get("side_effects") in {"write", "external"},
            )


def _tried(said: Sequence[tuple[str, str]]) -> Iterator[tuple[Tried, ...]]:
    """Pair each decision with what the user's side said to it: results, or a complaint, which fails all its calls."""
    calls: list[tuple[str, dict[str, Any]]] = []
    for role, text in said:
        if role == "assistant":
            calls = _calls(_object(text))
        elif results := _RESULTS.search(text):
            lines = [_object(line) for line in results[1].splitlines()]
            yield tuple(
                _outcome(line, *(calls[number] if number < len(calls) else ("", {})))
                for number, line in enumerate(lines)
            )
            calls = []
        elif calls and (at := text.find(_COMPLAINT)) >= 0:
            complaint = text[at + len(_COMPLAINT) :].strip().partition("\n")[0]
            yield tuple(Tried(tool, args, reason=complaint) for tool, args in calls)
            calls = []


def _calls(action: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    given = action.get("args")
    args: dict[str, Any] = given if isinstance(given, dict) else {}
    steps = action.get("plan") or (args.get("steps") if action.get("next_node") == "plan" else None)
    if isinstance(steps, list):
        return [(str(step.get("node")), step.get("args") or {}) for step in steps if isinstance(step, dict)]
    node = action.get("next_node")
    return [(node, args)] if isinstance(node, str) and node != "final_response" else []


def _outcome(line: dict[str, Any], called: str, args: dict[str, Any]) -> Tried:
    """Read one result. A shortened line is not JSON any more, and only shows that the tool was called."""
    tool = str(line.get("tool") or called)
    if line.get("status") == "succeeded":
        return Tried(tool, args, line.get("observation"))
    return Tried(
        tool, args, line.get("observation"), reason=str(line.get("reason") or line.get("error") or "no reason given")
    )
