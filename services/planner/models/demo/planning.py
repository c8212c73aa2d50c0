"""The demo model's plan for a question, its answer from what came of the plan, and results of tools as sentences."""

import re
from typing import Any

from runwire.plans import template_paths
from services.planner.conversation.encoding import compact
from services.planner.models.demo import choosing
from services.planner.models.demo.situation import Situation, Tool, Tried, gather

_ANSWER_KEYS = """raw_answer answer summary result text message content output response description explanation value"""
_EXPRESSION_KEYS = ("expression", "expr", "formula", "calculation", "equation")
_TITLES = ("title", "name", "heading", "source", "file", "path", "url", "id")
_BODIES = ("snippet", "text", "content", "passage", "summary", "excerpt", "description", "answer", "value")
_ARTIFACT = re.compile(r"<artifact:[^>]*>")
_MAX_CHARACTERS = 2_000
_LISTED = 5
MAX_DEPTH = 4


def tell(tried: Tried) -> str:
    """Return the result of a call as an answer, or say why it failed."""
    if tried.reason is not None:
        return f"{tried.tool} failed: {tried.reason}"
    number = tried.observation
    if isinstance(number, dict):
        number = next((number[key] for key in ("result", "value", "answer", "output") if key in number), None)
    expression = next((tried.args[key] for key in _EXPRESSION_KEYS if isinstance(tried.args.get(key), str)), None)
    if expression and not isinstance(number, bool):
        if isinstance(number, int | float):
            return f"{expression} = {compact(int(number) if number % 1 == 0 else number)}"
        if isinstance(number, str) and re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", number.strip(), re.IGNORECASE):
            return f"{expression} = {number}"
    text = _say(tried.observation, 0).strip()
    return (text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS].rstrip() + " …") or (
        f"{tried.tool} returned nothing."
    )


def _say(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return _ARTIFACT.sub("(attached)", value)
    if isinstance(value, dict) and depth < MAX_DEPTH:
        return _say_object(value, depth)
    if isinstance(value, list) and depth < MAX_DEPTH:
        return _say_list(value, depth)
    return "" if value is None else compact(value)


def _say_object(value: dict[str, Any], depth: int) -> str:
    artifacts = [key for key, inner in value.items() if isinstance(inner, str) and _ARTIFACT.fullmatch(inner)]
    attached = f"\nAttached: {', '.join(key.replace('_', ' ') for key in artifacts)}." if artifacts else ""
    shown = {key: inner for key, inner in value.items() if inner is not None and key not in artifacts}
    for key in _ANSWER_KEYS.split():
        inner = shown.get(key)
        if inner not in (None, "", {}, []) and not isinstance(inner, bool):
            return _say(inner, depth + 1) + attached
    rows = next((inner for inner in shown.values() if isinstance(inner, list) and inner), [])
    if rows and isinstance(rows[0], dict) and any(key in rows[0] for key in _BODIES):
        return _say_list(rows, depth)
    lines = [
        f"{key.replace('_', ' ')}: {inner if isinstance(inner, str) else compact(inner)}"
        for key, inner in shown.items()
    ]
    return "\n".join(lines) + attached


def _say_list(value: list[Any], depth: int) -> str:
    lines = []
    for item in value[:_LISTED]:
        title = next((str(item[key]) for key in _TITLES if item.get(key)), "") if isinstance(item, dict) else ""
        body = next((str(item[key]) for key in _BODIES if item.get(key)), "") if isinstance(item, dict) else ""
        lines.append(": ".join(part for part in (title, body) if part) or _say(item, depth + 1).replace("\n", ", "))
    if len(value) == 1:
        return lines[0]
    more = [f"… and {len(value) - _LISTED} more"] if len(value) > _LISTED else []
    return "\n".join([f"- {line}" for line in lines] + more)


_TEMPLATE = re.compile(r"\$\d+\.output\.[\w.]+\w")


def plan(situation: Situation, without_tools: str) -> tuple[str, str]:
    """Return the reasoning and the text of a plan. `without_tools`: the answer where no tool fits."""
    calls = [] if situation.must_answer else _calls(situation)
    if not calls:
        reasoning = "No tool here fits the question, so I answer directly."
        return reasoning, compact({"type": "direct_response", "content": without_tools})
    names = " and then ".join(call["tool_name"] for call in calls)
    reasoning = f"The question needs {names}."
    return reasoning, compact({"type": "tool_calls", "reasoning": reasoning, "calls": calls})


def answer(situation: Situation) -> tuple[str, str]:
    """Return the reasoning and the text of the answer, from what came of the plan."""
    if situation.rejected:
        lines = "\n".join(f"- {line}" for line in situation.rejected)
        return "My plan was rejected, so I say why.", f"My plan had errors, so nothing was executed:\n{lines}"
    results = [tell(each) for each in (situation.tried[-1] if situation.tried else ())]
    results += [f"{tool} was not executed." for tool in situation.not_executed]
    return "The plan has ended. That is what I can say.", "\n\n".join(results)


def _calls(situation: Situation) -> list[dict[str, Any]]:
    """Return the calls that the question asks for, one for each of its parts; the last ones may use earlier results."""
    calls: list[dict[str, Any]] = []
    made: list[Tool] = []
    for clause in choosing.clauses(situation.question) or [situation.question]:
        found = _call(situation, clause, made)
        if found is not None:
            tool, args = found
            calls.append({"tool_name": tool.name, "arguments": args})
            made.append(tool)
        elif made:
            return []
    if calls:
        return calls
    ranked = choosing.rank(situation)
    return [{"tool_name": ranked[0].tool.name, "arguments": ranked[0].args}] if ranked else []


def _call(situation: Situation, clause: str, made: list[Tool]) -> tuple[Tool, dict[str, Any]] | None:
    """Return the call for a part of the question.

    Arguments named like a field of an earlier result take it, unless the question gives a value in quotes. A template
    of the question is for the first required argument.
    """
    offered = {
        name: template
        for name, template in _offered(made).items()
        if not re.search(rf"\b{re.escape(name)}\b(?:\s+is)?\W*?[\"'“]", clause)
    }
    template = _TEMPLATE.search(clause)
    evidence = gather(_TEMPLATE.sub("", clause), situation.asked_on)
    for tool in choosing.named(situation, clause, without={tool.name for tool in made}):
        required = tool.args.get("required")
        spelled = {required[0]: template[0]} if template and isinstance(required, list) and required else {}
        args = choosing.fill(tool.args, evidence, {**situation.context, **offered, **spelled})
        if args is not None:
            return tool, args
    return None


def _offered(made: list[Tool]) -> dict[str, str]:
    """Return a template for each field of the results of earlier calls, by its name; the newest and shortest counts.

    `_metadata` says how a result was made, so nothing is taken from it.
    """
    offered: dict[str, str] = {}
    for index, tool in enumerate(made):
        paths: list[str] = [path.path for path in template_paths(tool.result)] if tool.result is not None else []
        for path in sorted(paths, key=len, reverse=True):
            if "<" not in path and not path.startswith("_metadata"):
                offered[path.rpartition(".")[2]] = f"${index}.output.{path}"
    return offered
