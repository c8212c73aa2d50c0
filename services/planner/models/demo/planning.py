"""The demo model with the strategy `planned`: a plan for the question, and the answer from what came of it."""

import re
from typing import Any

from runwire.plans import template_paths
from services.planner.conversation.encoding import compact
from services.planner.models.demo import answering, arguments, choosing
from services.planner.models.demo.evidence import gather
from services.planner.models.demo.situation import Situation, Tool

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
    results = [answering.tell(each) for each in (situation.tried[-1] if situation.tried else ())]
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
        args = arguments.fill(tool.args, evidence, {**situation.context, **offered, **spelled})
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
