"""Chooses the tool that fits a question, by the words and the values in the question."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from services.planner.models.demo import arguments
from services.planner.models.demo.evidence import Evidence, gather, stems, words
from services.planner.models.demo.situation import Situation, Tool

ENOUGH = 0.9
"""Minimum score of a tool that fits the question."""
_NAME, _TAG, _ARGUMENT, _DESCRIPTION = 3.0, 2.0, 1.5, 1.0
_HAS_EXPRESSION, _HAS_FILE, _ASKS_TEXTS, _ASKS_ROWS, _MIGHT_KNOW = 10.0, 5.0, 4.0, 4.0, ENOUGH
_ROWS = stems("row rows")
_SEARCHING = stems(
    "search find lookup look document documentation handbook manual guide policy notes knowledge wiki say says "
    "according mention"
)
_SEARCHER = stems("search find lookup retrieve document text knowledge wiki notes passage")
_ASKING = re.compile(
    r"\?|^\s*(?:what|who|whom|whose|when|where|why|how|which|is|are|does|do|can|tell|explain|describe|find|search)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"\?\s+|;\s*|,?\s+and\s+(?=(?:what|who|when|where|why|how|which|tell|show|find|search|calc|calculate|compute|draw"
    r"|plot|list|get|give|look)\b)"
    r"|,?\s+then\s+|\.\s+(?=[A-Z])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A tool with its arguments."""

    tool: Tool
    args: dict[str, Any]
    because: str
    guess: bool = False
    """It was chosen only because it takes any question."""


def rank(situation: Situation, *, text: str | None = None, without: Iterable[str] = ()) -> list[Choice]:
    """Return the tools that fit the question, or one part of it (`text`), best first, and whose arguments it fills."""
    evidence = gather(text or situation.question, situation.asked_on)
    return [
        Choice(tool, args, because, guess=score == _MIGHT_KNOW)
        for score, because, tool in _fitting(situation, evidence, without)
        if (args := arguments.fill(tool.args, evidence, situation.context)) is not None
    ]


def named(situation: Situation, text: str, without: Iterable[str] = ()) -> list[Tool]:
    """Return the tools that fit a text, best first, whether or not it says all that they need."""
    return [tool for _, _, tool in _fitting(situation, gather(text, situation.asked_on), without)]


def parts(situation: Situation) -> list[Choice]:
    """Return one choice per part of a question that clearly asks several tools; else an empty list."""
    asked = clauses(situation.question)
    chosen = [ranked[0] for clause in asked if (ranked := rank(situation, text=clause)) and not ranked[0].guess]
    different = list({choice.tool.name: choice for choice in chosen}.values())
    return different if len(different) > 1 and len(different) == len(chosen) == len(asked) else []


def clauses(question: str) -> list[str]:
    """Return the parts of a question that may ask for a tool each, in their order."""
    found = [clause.strip(" ,.?!") for clause in _CLAUSE.split(question)]
    return [clause for clause in found if len(words(clause)) > 1]


def _fitting(situation: Situation, evidence: Evidence, without: Iterable[str]) -> list[tuple[float, str, Tool]]:
    """Return score, reason and tool of those that fit, best first. A tool that writes must be named by the question.

    A word that many tools share says little about any of them.
    """
    asked, excluded = stems(evidence.text), set(without)
    places = {
        tool.name: (
            (stems(tool.name), _NAME),
            (stems(" ".join(tool.tags)), _TAG),
            (stems(" ".join(tool.properties)), _ARGUMENT),
            (stems(tool.description), _DESCRIPTION),
        )
        for tool in situation.tools
    }
    tools_by_word = Counter(word for each in places.values() for word in frozenset().union(*(part for part, _ in each)))
    fitting = []
    for tool in situation.tools:
        score, because = _strength(tool, evidence, asked)
        shared: dict[str, float] = {}
        for part, weight in places[tool.name]:
            for word in part & asked:
                shared[word] = max(shared.get(word, 0.0), weight / tools_by_word[word] ** 0.5)
        if shared and not because:
            best = sorted(shared, key=lambda word: (-shared[word], word))[:3]
            spelled = [next((each for each in words(evidence.text) if word in stems(each)), word) for word in best]
            because = f"it shares {' and '.join(map(repr, spelled))} with the question"
        score += sum(shared.values())
        if score >= ENOUGH and tool.name not in excluded and (not tool.writes or asked & stems(tool.name)):
            fitting.append((score, because, tool))
    return sorted(fitting, key=lambda each: -each[0])


def _strength(tool: Tool, evidence: Evidence, asked: frozenset[str]) -> tuple[float, str]:
    """What the question holds that this tool takes."""
    meanings = frozenset().union(*(stems(name) | frozenset(words(name)) for name in tool.texts))
    if evidence.expression is not None and meanings & arguments.EXPRESSION:
        because = f"the question holds the expression {evidence.expression} and the tool takes one"
        return _HAS_EXPRESSION, because
    if evidence.files and meanings & arguments.FILE:
        return _HAS_FILE, f"the question names the file {evidence.files[0].value} and the tool takes one"
    if not tool.writes and asked & _ROWS & stems(tool.name) and stems(" ".join(tool.properties)) & arguments.CONDITIONS:
        return _ASKS_ROWS, "the question asks for rows and the tool filters them"
    if not tool.writes and meanings & arguments.QUERY:
        if asked & _SEARCHING and stems(tool.name + " " + tool.description) & _SEARCHER:
            return _ASKS_TEXTS, "the question asks what some text says and the tool searches texts"
        # Greetings and thanks are no reason to search; an expression is for a calculator.
        if len(asked) > 1 and _ASKING.search(evidence.text) and evidence.expression is None:
            return _MIGHT_KNOW, "it takes any question and might know"
    return 0.0, ""
