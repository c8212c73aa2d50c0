"""Fills a tool's arguments from the question, by its schema. Arguments that the question lacks are left out.

Required arguments are filled if they are of a simple type (a text, a number, one of some values), and optional ones if
the question names them or is meant by them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from services.planner.models.demo.evidence import Evidence, Found, Span, stem, stems, words
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
"""Arguments that are examined."""


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
