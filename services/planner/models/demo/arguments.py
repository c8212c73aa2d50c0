"""Fills a tool's arguments from the question, by its schema. Arguments that the question lacks are left out."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from services.planner.models.demo.evidence import Evidence, Found, Span
from services.planner.models.demo.words import STOP, stem, stems, words
from services.shared.json_schema.checks import InvalidSchema, complaints

EXPRESSION = stems("expression expr formula calculation equation math")
FILE = stems("file filename path document dataset table csv sheet source spreadsheet")
QUERY = stems("query question search q term keyword prompt topic request ask phrase")
TEXT = stems("text content message input string body sentence paragraph value note title subject")
_ADDRESS = stems("url uri link address website page")
_MAIL = stems("email mail recipient to")
_DATE = stems("date day when start end since until from")
_CODE = stems("id code number reference ticket order sku key symbol ticker")
_UPPER = stems("symbol ticker currency code from to base target unit")
_PROPER = stems(
    "city place location country name customer person user company region state author country town team project "
    "product"
)
_FORMAL = stems("sql code command script pattern regex json html xml python shell selector format program")
_FORMATS = frozenset({"uri", "url", "email", "date", "date-time"})
MAX_DEPTH = 4
MAX_ARGUMENTS = 2_000
"""Arguments that are examined, nested ones included: through references, a small schema can have any number."""
_MISSING = object()


def fill(schema: dict[str, Any], evidence: Evidence, context: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return arguments that the schema accepts, or None if the question lacks a required one."""
    try:
        args = _Filling(schema, evidence, context).object(schema, 0)
        return args if isinstance(args, dict) and not complaints(args, schema) else None
    except (InvalidSchema, RecursionError):
        return None


def resolve(schema: Any, root: dict[str, Any]) -> dict[str, Any]:
    """Follow a local reference, and take the first member that is not null of a union."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/"):
            target: Any = root
            for part in reference[2:].split("/"):
                target = target.get(part, {}) if isinstance(target, dict) else {}
            schema = target
            continue
        members = (
            schema.get("anyOf")
            or schema.get("oneOf")
            or (schema.get("allOf") if len(schema.get("allOf") or ()) == 1 else None)
        )
        if not isinstance(members, list):
            break
        member = next((each for each in members if isinstance(each, dict) and each.get("type") != "null"), {})
        schema = {
            **{name: value for name, value in schema.items() if name not in {"anyOf", "oneOf", "allOf"}},
            **member,
        }
    return schema if isinstance(schema, dict) else {}


def kind_of(schema: dict[str, Any]) -> str:
    """Return the JSON type of a resolved schema; `string` where it names none."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "string")
    return kind if isinstance(kind, str) else "object" if "properties" in schema else "string"


class _Filling:
    """One attempt. `used`: spans of the question that are used already."""

    def __init__(self, root: dict[str, Any], evidence: Evidence, context: Mapping[str, Any]) -> None:
        self._root = root
        self._evidence = evidence
        self._context = context
        self._used: list[Span] = []
        self._left = MAX_ARGUMENTS

    def object(self, schema: dict[str, Any], depth: int) -> Any:
        """Return required arguments, then others that the question names; `_MISSING` if a required one lacks."""
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [name for name in schema.get("required") or () if isinstance(name, str)]
        found: dict[str, Any] = {}
        for name in [*required, *(name for name in properties if name not in required)]:
            self._left -= 1
            if self._left < 0:
                raise InvalidSchema("it has too many arguments")
            inner = resolve(properties.get(name), self._root)
            value = self._value(name, inner, depth, required=name in required)
            if value is not _MISSING:
                found[name] = value
            elif name in required:
                return _MISSING
        return {name: found[name] for name in [*properties, *required] if name in found}

    def _value(self, name: str, schema: dict[str, Any], depth: int, *, required: bool) -> Any:
        if name in self._context and not complaints(
            self._context[name], {**schema, "$defs": self._root.get("$defs", {})}
        ):
            return self._context[name]
        if "const" in schema:
            return schema["const"] if required else _MISSING
        if isinstance(schema.get("enum"), list):
            return self._choice(schema, required=required)
        kind = kind_of(schema)
        value: Any = _MISSING
        if kind in {"integer", "number"}:
            value = self._number(name, kind, schema, required=required)
        elif kind == "boolean":
            value = self._flag(name)
        elif kind == "array":
            value = self._list(name, resolve(schema.get("items"), self._root), required=required)
        elif kind == "object" and depth < MAX_DEPTH and (required or schema.get("required")):
            value = self.object(schema, depth + 1)
        elif kind == "string":
            value = self._string(name, schema, required=required)
        return schema["default"] if value is _MISSING and required and "default" in schema else value

    def _choice(self, schema: dict[str, Any], *, required: bool) -> Any:
        said = [stem(word) for word in words(self._evidence.text)]
        for option in schema["enum"]:
            parts = [stem(word) for word in words(option)] if isinstance(option, str) else []
            if parts and any(said[at : at + len(parts)] == parts for at in range(len(said))):
                return option
        if required and "default" in schema:
            return schema["default"]
        return schema["enum"][0] if required and len(schema["enum"]) == 1 else _MISSING

    def _flag(self, name: str) -> Any:
        text = self._evidence.text.lower()
        for word in words(name):
            if word not in STOP and (
                hit := re.search(rf"(\b(?:no|not|without|don't|do not|never)\s+(?:\w+\s+)?)?\b{word}", text)
            ):
                return not hit[1]
        return _MISSING

    def _number(self, name: str, kind: str, schema: dict[str, Any], *, required: bool) -> Any:
        free = [
            found for found in self._free(self._evidence.numbers) if kind == "number" or float(found.text).is_integer()
        ]
        near = [found for found in free if self._is_near(name, found)]
        for found in near or (free if required else []):
            value = _number_of(found.text)
            if not complaints(
                value, _only(schema, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
            ):
                return self._use(found, value)
        return _MISSING

    def _is_near(self, name: str, found: Found) -> bool:
        """Whether a word of the argument's name is next to the number: `limit 5`, `5 results`."""
        text, (start, end) = self._evidence.text, found.span
        before, after = words(text[:start])[-2:], words(text[end:])[:2]
        named = {stem(word) for word in words(name)} | (
            {"first", "top", "last"} & set(words(text)) if stems(name) & _LIMITS else set()
        )
        named |= _LIMITED if stems(name) & _LIMITS else set()
        return any(stem(word) in named for word in before + after)

    def _list(self, name: str, items: dict[str, Any], *, required: bool) -> Any:
        kind = kind_of(items)
        if kind in {"number", "integer"}:
            numbers = self._free(self._evidence.numbers)
            values = [
                int(number) if number.is_integer() else number for number in (float(found.text) for found in numbers)
            ]
            return values if len(values) > 1 or (values and required) else _MISSING
        if kind != "string" or not required:
            return _MISSING
        if isinstance(items.get("enum"), list):
            chosen = [
                option
                for option in items["enum"]
                if isinstance(option, str) and stems(option) & stems(self._evidence.text)
            ]
            return chosen or _MISSING
        for pieces in (self._evidence.quoted, self._evidence.files if stems(name) & FILE else [], self._evidence.urls):
            if pieces:
                return [found.text for found in pieces]
        text = self._evidence.text
        listed = re.search(r":\s*(.+?)[.?!]?$", text, re.DOTALL) or re.search(
            r"((?:[\w-]+, )+(?:and |or )?[\w-]+)", text
        )
        return (
            [each.strip() for each in re.split(r",\s*(?:and |or )?|\s+(?:and|or)\s+", listed[1]) if each.strip()]
            if listed
            else _MISSING
        )

    def _string(self, name: str, schema: dict[str, Any], *, required: bool) -> Any:
        for found in self._candidates(name, schema, required=required):
            if not complaints(found.text, _only(schema, "pattern", "minLength", "maxLength")):
                return self._use(found, found.text)
        return _MISSING

    def _candidates(self, name: str, schema: dict[str, Any], *, required: bool) -> Iterator[Found]:
        """Yield candidates for a string, best first. An optional argument takes clear matches only."""
        evidence, meant = self._evidence, {stem(word) for word in words(name)}
        if meant & EXPRESSION:
            yield from (
                [Found(_notation(evidence.expression, schema), evidence.expression_span or (0, 0))]
                if evidence.expression
                else []
            )
            return
        yield from self._shaped(meant, schema.get("format"))
        if not meant & (QUERY | TEXT):
            yield from self._named(name)
        if schema.get("format") in _FORMATS:
            return
        if not required:
            yield from self._optional(name, meant)
        elif meant & (QUERY | TEXT):
            yield from self._free(evidence.quoted)
            if meant & TEXT and (hit := re.search(r":\s+(\S.*)$", evidence.text, re.DOTALL)):
                yield Found(hit[1].strip(), hit.span(1))
            yield Found(evidence.text, (0, 0))
        else:
            yield from self._proper(meant)

    def _shaped(self, meant: set[str], format_: str | None) -> Iterator[Found]:
        """Yield values that are known by their shape, such as files and addresses."""
        evidence = self._evidence
        for wanted, formats, pieces in (
            (FILE, (), evidence.files),
            (_ADDRESS, ("uri", "url"), evidence.urls),
            (_MAIL, ("email",), evidence.emails),
            (_DATE, ("date", "date-time"), evidence.dates),
        ):
            if meant & wanted or format_ in formats:
                yield from self._free(pieces)

    def _optional(self, name: str, meant: set[str]) -> Iterator[Found]:
        """Yield clear matches for an optional argument: the question itself; `titled "…"`; a city."""
        if {"question", "query", "prompt"} & set(words(name)):
            yield Found(self._evidence.text, (0, 0))
        elif meant & stems(self._evidence.text):
            yield from self._free(self._evidence.quoted)
        elif meant & (_UPPER | _PROPER):
            yield from self._proper(meant)

    def _proper(self, meant: set[str]) -> Iterator[Found]:
        evidence = self._evidence
        if meant & _CODE:
            yield from self._free(evidence.codes)
        if meant & _UPPER:
            yield from self._free(evidence.upper)
        yield from self._free(evidence.quoted)
        if meant & _CODE:
            yield from self._free(evidence.numbers)
        if meant & _PROPER:
            yield from self._free(evidence.names)
        elif not meant & (_CODE | _UPPER | FILE | _ADDRESS | _MAIL | _DATE | _FORMAL):
            yield from self._free(evidence.names[:1])

    def _named(self, name: str) -> Iterator[Found]:
        """Yield values next to the argument's name: `city: Paris`, `city is Paris`; `from USD` for `from_currency`."""
        spelled = r"[\s_-]*".join(re.escape(word) for word in words(name))
        for pattern in (
            rf"\b{spelled}\b\s*(?:=|:|is|named|called)\s*[\"'“]?([\w./@-]*\w)",
            rf"(?i:\b{spelled}\b)\s+([A-Z#][\w-]*)",
        ):
            for hit in re.finditer(pattern, self._evidence.text):
                yield from self._free([Found(hit[1], hit.span(1))])
        if "group" in words(name):
            for hit in re.finditer(r"\bgroup(?:ed|ing)? by (?:the )?(\w+)", self._evidence.text, re.IGNORECASE):
                yield from self._free([Found(hit[1], hit.span(1))])
        head = words(name)[:1]
        if head and head[0] in {"from", "to", "in", "at", "into", "source", "target"}:
            preposition = {"source": "from", "target": "(?:to|into|in)", "to": "(?:to|into|in)"}.get(head[0], head[0])
            for hit in re.finditer(rf"\b{preposition}\s+(?:the\s+)?(\w+)", self._evidence.text):
                yield from self._free([Found(hit[1], hit.span(1))])

    def _free(self, pieces: list[Found]) -> list[Found]:
        return [
            found
            for found in pieces
            if not any(start < found.span[1] and found.span[0] < end for start, end in self._used)
        ]

    def _use(self, found: Found, value: Any) -> Any:
        if found.span != (0, 0):
            self._used.append(found.span)
        return value


_LIMITS = stems("limit count max maximum top number amount size results n k")
_LIMITED = stems("result hit item row entries page document line top record")


def _only(schema: dict[str, Any], *keywords: str) -> dict[str, Any]:
    return {keyword: schema[keyword] for keyword in keywords if keyword in schema}


def _notation(expression: str, schema: dict[str, Any]) -> str:
    """Return the expression with powers as `^`, where the description of the argument shows it so."""
    return expression.replace("**", "^") if "^" in str(schema.get("description", "")) else expression


def _number_of(text: str) -> float:
    if text.lstrip("+-").isdecimal():
        return int(text)
    return int(float(text)) if float(text).is_integer() else float(text)
