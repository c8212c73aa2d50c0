"""Chooses the tool that fits a question, by the words and the values in the question."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from services.planner.models.demo import arguments
from services.planner.models.demo.evidence import Evidence, gather
from services.planner.models.demo.situation import Situation, Tool
from services.planner.models.demo.words import stems, words

ENOUGH = 0.9
"""Minimum score of a tool that fits the question."""
_NAME, _TAG, _ARGUMENT, _DESCRIPTION = 3.0, 2.0, 1.5, 1.0
_HOLDS_EXPRESSION, _HOLDS_FILE, _HOLDS_ADDRESS, _HOLDS_MONEY, _ASKS_TEXTS, _MIGHT_KNOW = (
    10.0,
    5.0,
    5.0,
    4.0,
    4.0,
    ENOUGH,
)
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
    """A tool with its arguments and its score."""

    tool: Tool
    args: dict[str, Any]
    score: float
    because: str
    guess: bool = False
    """It was chosen only because it takes any question."""


def rank(situation: Situation, *, text: str | None = None, without: Iterable[str] = ()) -> list[Choice]:
    """Return the tools that fit the question, or one part of it (`text`), best first.

    Tools whose required arguments cannot be filled are left out.
    """
    evidence = gather(text or situation.question, situation.asked_on)
    asked = stems(evidence.text)
    rarity = _rarity(situation.tools)
    choices = []
    excluded = set(without)
    for tool in situation.tools:
        score, because = _score(tool, evidence, asked, rarity)
        if tool.name in excluded or score < ENOUGH or (tool.writes and not asked & stems(tool.name)):
            continue
        args = arguments.fill(tool.args, evidence, situation.context)
        if args is not None:
            choices.append(Choice(tool, args, score, because, guess=score == _MIGHT_KNOW))
    return sorted(choices, key=lambda choice: -choice.score)


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


def named(situation: Situation, text: str, without: Iterable[str] = ()) -> list[Tool]:
    """Return the tools that fit a text, best first, whether or not it says all that they need."""
    evidence, rarity, excluded = gather(text, situation.asked_on), _rarity(situation.tools), set(without)
    asked = stems(evidence.text)
    scores = [(_score(tool, evidence, asked, rarity)[0], tool) for tool in situation.tools if tool.name not in excluded]
    fitting = [
        (score, tool) for score, tool in scores if score >= ENOUGH and (not tool.writes or asked & stems(tool.name))
    ]
    return [tool for _, tool in sorted(fitting, key=lambda each: -each[0])]


def _rarity(tools: Sequence[Tool]) -> dict[str, float]:
    """Return the weight of each word: a word that many tools share says little about any of them."""
    seen = Counter(word for tool in tools for word in _words_of(tool))
    return {word: 1.0 if count == 1 else 1.0 / count**0.5 for word, count in seen.items()}


def _words_of(tool: Tool) -> frozenset[str]:
    return stems(tool.name) | stems(" ".join(tool.tags)) | stems(" ".join(_properties(tool))) | stems(tool.description)


def _properties(tool: Tool) -> dict[str, dict[str, Any]]:
    properties = tool.args.get("properties")
    return (
        {name: arguments.resolve(inner, tool.args) for name, inner in properties.items()}
        if isinstance(properties, dict)
        else {}
    )


def _score(tool: Tool, evidence: Evidence, asked: frozenset[str], rarity: dict[str, float]) -> tuple[float, str]:
    strength, because = _strength(tool, evidence, asked)
    places = (
        (tool.name, _NAME),
        (" ".join(tool.tags), _TAG),
        (" ".join(_properties(tool)), _ARGUMENT),
        (tool.description, _DESCRIPTION),
    )
    shared: dict[str, float] = {}
    for text, weight in places:
        for word in stems(text) & asked:
            shared[word] = max(shared.get(word, 0.0), weight * rarity[word])
    if shared and not because:
        best = sorted(shared, key=lambda word: (-shared[word], word))[:3]
        because = f"it shares {' and '.join(repr(_spelled(word, evidence.text)) for word in best)} with the question"
    return strength + sum(shared.values()), because


def _spelled(wanted: str, text: str) -> str:
    return next((word for word in words(text) if wanted in stems(word)), wanted)


def _strength(tool: Tool, evidence: Evidence, asked: frozenset[str]) -> tuple[float, str]:
    """What the question holds that this tool takes."""
    strings = {name for name, inner in _properties(tool).items() if arguments.kind_of(inner) in {"string", "array"}}
    meanings = frozenset().union(*(stems(name) | frozenset(words(name)) for name in strings))
    if evidence.expression and meanings & arguments.EXPRESSION:
        return _HOLDS_EXPRESSION, f"the question holds the expression {evidence.expression} and the tool takes one"
    if evidence.files and meanings & arguments.FILE:
        return _HOLDS_FILE, f"the question names the file {evidence.files[0].text} and the tool takes one"
    if len(evidence.upper) > 1 and "currency" in meanings:
        return _HOLDS_MONEY, "the question names two currencies and the tool takes them"
    if evidence.urls and meanings & stems("url uri link"):
        return _HOLDS_ADDRESS, "the question holds an address and the tool takes one"
    if not tool.writes and meanings & arguments.QUERY:
        if asked & _SEARCHING and stems(tool.name + " " + tool.description) & _SEARCHER:
            return _ASKS_TEXTS, "the question asks what some text says and the tool searches texts"
        # Greetings and thanks are no reason to search; an expression is for a calculator.
        if len(asked) > 1 and _ASKING.search(evidence.text) and not evidence.expression:
            return _MIGHT_KNOW, "it takes any question and might know"
    return 0.0, ""
