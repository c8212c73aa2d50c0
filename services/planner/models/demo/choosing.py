"""Chooses the tool that fits a question, and fills its arguments, by the words and the values in the question.

Required arguments are filled if they are of a simple type (a text, a number, one of some values), and optional ones if
the question names them or is meant by them. What the question lacks is left out; no required one may be missing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from services.planner.models.demo.situation import Evidence, Found, Situation, Span, Tool, gather, stem, stems, words
from services.shared.json_schema.checks import InvalidSchema, complaints

EXPRESSION = stems("expression expr formula calculation equation math")
FILE = stems("file filename path document dataset table csv sheet source spreadsheet")
QUERY = stems("query question search q term keyword prompt topic request ask phrase")
_TEXT = stems("text content message input string body sentence paragraph value note title subject")
_ADDRESS = stems("url uri link address website page")
_MAIL = stems("email mail recipient to")
_DATE = stems("date day when start end since until from")
_CODE = stems("id code number reference ticket order sku key symbol ticker")
_FORMAL = stems("sql code command script pattern regex json html xml python shell selector format program")
CONDITIONS = stems("filter condition where")
_FORMATS = frozenset({"uri", "url", "email", "date", "date-time"})
_CONDITION = re.compile(
    r"\b(?:where|whose|with|and|have|has|a)\s+(?:an?\s+)?(?P<column>\"[^\"]+\"|[\w-]+)\s+"
    r"(?P<op>is|are|of|=|over|above|>|under|below|<|containing|contains)?\s*(?P<value>\"[^\"]+\"|[\w.-]*\w)",
    re.IGNORECASE,
)
_OPERATORS = {
    **dict.fromkeys(("over", "above", ">"), "greater"),
    **dict.fromkeys(("under", "below", "<"), "less"),
    **dict.fromkeys(("containing", "contains"), "contains"),
}
MAX_ARGUMENTS = 2_000


def fill(schema: dict[str, Any], evidence: Evidence, context: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments that the schema accepts, or None if the question lacks a required one.

    `context`: values that are taken for arguments of the same name.
    """
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = [name for name in schema.get("required") or () if isinstance(name, str)]
    names = [*required, *(name for name in properties if name not in required)]
    filled: dict[str, Any] = {}
    conditions = _conditions(evidence.text)
    used: list[Span] = []
    try:
        for name in names[:MAX_ARGUMENTS]:
            inner = properties.get(name)
            inner = inner if isinstance(inner, dict) else {}
            checked = {**inner, "$defs": schema.get("$defs", {})}
            given = [Found(context[name])] if name in context else []
            if conditions and inner.get("type") == "array" and {stem(word) for word in words(name)} & CONDITIONS:
                given.append(Found(conditions))
            for found in [*given, *_candidates(name, inner, evidence, required=name in required)]:
                free = not any(start < found.span[1] and found.span[0] < end for start, end in used)
                if free and not complaints(found.value, checked):
                    filled[name] = found.value
                    used.append(found.span)
                    break
            else:
                if name in required:
                    return None
        args = {name: filled[name] for name in [*properties, *required] if name in filled}
        return None if complaints(args, schema) else args
    except (InvalidSchema, RecursionError):
        return None


def _candidates(name: str, schema: dict[str, Any], evidence: Evidence, *, required: bool) -> Iterator[Found]:
    """Yield values for an argument, best first."""
    kinds = schema.get("type", "string")
    kind = kinds if isinstance(kinds, str) else next((each for each in kinds if each != "null"), "string")
    if isinstance(schema.get("enum"), list):
        said = [stem(word) for word in words(evidence.text)]
        for option in schema["enum"]:
            parts = [stem(word) for word in words(option)] if isinstance(option, str) else []
            if parts and any(said[at : at + len(parts)] == parts for at in range(len(said))):
                yield Found(option)
    elif kind in ("integer", "number"):
        for found in evidence.numbers:
            beside = words(evidence.text[: found.span[0]])[-2:] + words(evidence.text[found.span[1] :])[:2]
            if required or stems(name) & {stem(word) for word in beside}:
                yield found
    elif kind == "string":
        yield from _texts(name, schema, evidence, required=required)
    if required and "const" in schema:
        yield Found(schema["const"])
    if required and "default" in schema:
        yield Found(schema["default"])


def _conditions(text: str) -> list[dict[str, Any]]:
    """Return what the question asks of columns, such as `whose Pay is over 100`: whether it fits the schema decides."""
    found = []
    for match in _CONDITION.finditer(text):
        column, value = (match[part].strip('"') for part in ("column", "value"))
        is_number = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) and not match["value"].startswith('"')
        operator = _OPERATORS.get((match["op"] or "").lower(), "equals")
        found.append({"column": column, "op": operator, "value": float(value) if is_number else value})
    return found


def _texts(name: str, schema: dict[str, Any], evidence: Evidence, *, required: bool) -> Iterator[Found]:
    meant, format_ = {stem(word) for word in words(name)}, schema.get("format")
    if meant & EXPRESSION:
        if evidence.expression is not None:
            power = "^" if "^" in str(schema.get("description", "")) else "**"
            yield Found(evidence.expression.replace("**", power))
        return
    for wanted, formats, pieces in (
        (FILE, (), evidence.files),
        (_ADDRESS, ("uri", "url"), evidence.urls),
        (_MAIL, ("email",), evidence.emails),
        (_DATE, ("date", "date-time"), evidence.dates),
    ):
        if meant & wanted or format_ in formats:
            yield from pieces
    if format_ in _FORMATS:
        return
    spelled = r"[\s_-]*".join(re.escape(word) for word in words(name))
    named = re.compile(rf"\b{spelled}\b\W*(?:is|named|called)?\W*$", re.IGNORECASE)  # `the topic "tea"`
    yield from (found for found in evidence.quoted if named.search(evidence.text[: found.span[0]]))
    if required:
        yield from _guesses(meant, evidence)
    elif {"question", "query", "prompt"} & set(words(name)):
        yield Found(evidence.text)
    elif meant & stems(evidence.text):
        yield from evidence.quoted


def _guesses(meant: set[str], evidence: Evidence) -> Iterator[Found]:
    """Yield texts for a required argument whose name is not in the question."""
    if meant & (QUERY | _TEXT):
        yield from evidence.quoted
        if meant & _TEXT and (hit := re.search(r":\s+(\S.*)$", evidence.text, re.DOTALL)):
            yield Found(hit[1].strip(), hit.span(1))
        yield Found(evidence.text)
        return
    yield from evidence.codes if meant & _CODE else ()
    yield from evidence.quoted
    if meant & _CODE:
        yield from (found._replace(value=evidence.text[slice(*found.span)]) for found in evidence.numbers)
    elif not meant & (FILE | _ADDRESS | _MAIL | _DATE | _FORMAL):
        yield from evidence.names


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
        if (args := fill(tool.args, evidence, situation.context)) is not None
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
    """Return score, reason and tool of those that fit, best first. A word that many tools share says little."""
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
    if evidence.expression is not None and meanings & EXPRESSION:
        because = f"the question holds the expression {evidence.expression} and the tool takes one"
        return _HAS_EXPRESSION, because
    if evidence.files and meanings & FILE:
        return _HAS_FILE, f"the question names the file {evidence.files[0].value} and the tool takes one"
    if not tool.writes and asked & _ROWS & stems(tool.name) and stems(" ".join(tool.properties)) & CONDITIONS:
        return _ASKS_ROWS, "the question asks for rows and the tool filters them"
    if not tool.writes and meanings & QUERY:
        if asked & _SEARCHING and stems(tool.name + " " + tool.description) & _SEARCHER:
            return _ASKS_TEXTS, "the question asks what some text says and the tool searches texts"
        # Greetings and thanks are no reason to search; an expression is for a calculator.
        if len(asked) > 1 and _ASKING.search(evidence.text) and evidence.expression is None:
            return _MIGHT_KNOW, "it takes any question and might know"
    return 0.0, ""
