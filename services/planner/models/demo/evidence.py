"""Finds values in the user's question: expressions, files, addresses, quotations, numbers, dates, names."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta

from services.planner.models.demo.words import STOP

Span = tuple[int, int]

_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_URL = re.compile(r"https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_FILE = re.compile(r"(?<![\w@])(?:[\w.~-]*/)*[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,4}\b(?!\.\w|/)")
MAX_QUESTION_CHARACTERS = 2_000
_NO_FILES = frozenset({"e.g", "i.e"})
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_DAYS = {"today": 0, "tomorrow": 1, "yesterday": -1}
_DAY = re.compile(r"\b(today|tomorrow|yesterday)\b", re.IGNORECASE)
_CODE = re.compile(
    r"#\w+|\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*\b|\b[A-Z]{2,}(?:-[A-Z0-9]+)+\b"
)
_UPPER = re.compile(r"\b[A-Z]{2,10}\b")
_NAME = re.compile(r"\b[A-Z][\w’'-]*(?:[ ](?:(?:of|de|la|van|von|the)[ ])?[A-Z][\w’'-]*)*")
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.])[-−]?\d+(?:\.\d+)?(?![\w])")
_TO_TWELVE = "one two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS = dict(zip(_TO_TWELVE.split(), range(1, 13), strict=True)) | {
    "dozen": 12,
    "twenty": 20,
    "fifty": 50,
    "hundred": 100,
}
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)

_SPOKEN = (
    (re.compile(r"(\d)\s*(?:multiplied by|times|[x×·])\s*(?=[\d(])", re.IGNORECASE), r"\1*"),
    (re.compile(r"(\d)\s*(?:divided by|over|÷)\s*(?=[\d(])", re.IGNORECASE), r"\1/"),
    (re.compile(r"(\d)\s*plus\s*(?=[\d(])", re.IGNORECASE), r"\1+"),
    (re.compile(r"(\d)\s*minus\s*(?=[\d(])", re.IGNORECASE), r"\1-"),
    (re.compile(r"(\d)\s*(?:to the power of|\^)\s*(?=[\d(])", re.IGNORECASE), r"\1**"),
    (re.compile(r"(\d)\s*squared\b", re.IGNORECASE), r"\1**2"),
    (re.compile(r"(\d)\s*(?:%|percent)\s*of\s*(?=[\d(])", re.IGNORECASE), r"\1/100*"),
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"[−–]"), "-"),
)
_OPERAND = r"(?:[a-z]{2,5}\()?[-(]*\d+(?:\.\d+)?\)*"
_EXPRESSION = re.compile(rf"(?<![\w.]){_OPERAND}(?:\s*(?:\*\*|[-+*/%])\s*{_OPERAND})+|\b[a-z]{{2,5}}\(\d+(?:\.\d+)?\)")
_CALCULATE = re.compile(
    r"\b(calc\w*|comput\w*|what(?:'s| is| are)?|how much|evaluate|solve|result|sum|equals?)\b|=", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Found:
    """A piece of the question."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Evidence:
    """All values of one question, in reading order. Values of different kinds may overlap; a span is used once."""

    text: str
    asked_on: str | None = None
    expression: str | None = None
    expression_span: Span | None = None
    quoted: list[Found] = field(default_factory=list)
    urls: list[Found] = field(default_factory=list)
    emails: list[Found] = field(default_factory=list)
    files: list[Found] = field(default_factory=list)
    dates: list[Found] = field(default_factory=list)
    codes: list[Found] = field(default_factory=list)
    upper: list[Found] = field(default_factory=list)
    names: list[Found] = field(default_factory=list)
    numbers: list[Found] = field(default_factory=list)


def gather(text: str, asked_on: str | None = None) -> Evidence:
    """Find every value in the question; in a very long question, in its beginning."""
    whole, text = text, text[:MAX_QUESTION_CHARACTERS]
    urls, emails, dates = _all(_URL, text), _all(_EMAIL, text), _dates(text, asked_on)
    quoted = [Found(next(group for group in hit.groups() if group), hit.span()) for hit in _QUOTED.finditer(text)]
    files = [
        found
        for found in _all(_FILE, text)
        if not _inside(found.span, urls + emails) and found.text.lower() not in _NO_FILES
    ]
    expression, span = _expression(text, dates)
    taken = urls + emails + files + dates + ([Found("", span)] if span else [])
    codes = [found for found in _all(_CODE, text) if not _inside(found.span, taken)]
    numbers = [found for found in _numbers(text) if not _inside(found.span, taken + codes)]
    names = [name for name in _names(text) if not _inside(name.span, urls + emails + files)]
    upper = [found for found in _all(_UPPER, text) if not _inside(found.span, urls + files + codes)]
    return Evidence(whole, asked_on, expression, span, quoted, urls, emails, files, dates, codes, upper, names, numbers)


def _all(pattern: re.Pattern[str], text: str) -> list[Found]:
    return [Found(hit[0], hit.span()) for hit in pattern.finditer(text)]


def _inside(span: Span, taken: list[Found]) -> bool:
    return any(other.span[0] <= span[0] and span[1] <= other.span[1] for other in taken)


def _dates(text: str, asked_on: str | None) -> list[Found]:
    found = _all(_DATE, text)
    if asked_on:
        for hit in _DAY.finditer(text):
            day = date.fromisoformat(asked_on) + timedelta(days=_DAYS[hit[0].lower()])
            found.append(Found(day.isoformat(), hit.span()))
    return sorted(found, key=lambda each: each.span)


def _numbers(text: str) -> list[Found]:
    digits = [Found(found.text.replace(",", "").replace("−", "-"), found.span) for found in _all(_NUMBER, text)]
    spoken = [Found(str(_NUMBER_WORDS[hit[0].lower()]), hit.span()) for hit in _NUMBER_WORD.finditer(text)]
    return sorted(digits + spoken, key=lambda each: each.span)


def _names(text: str) -> Iterator[Found]:
    """Yield capitalised phrases, without the first word of a sentence."""
    for hit in _NAME.finditer(text):
        start, phrase = hit.start(), hit[0]
        before = text[:start].rstrip()
        first, _, rest = phrase.partition(" ")
        if not before or before[-1] in ".?!:\n":
            if not rest and (first.lower() in STOP or not before):
                continue
            if rest:
                start, phrase = start + len(first) + 1, rest
        phrase = re.sub(r"[’']s?$", "", phrase)
        if phrase.lower() not in STOP and len(phrase) > 1:
            yield Found(phrase, (start, start + len(phrase)))


def _expression(text: str, dates: list[Found]) -> tuple[str | None, Span | None]:
    """Return the longest arithmetic expression in program notation, and roughly its span in the written text."""
    blank = text
    for found in dates:
        blank = blank[: found.span[0]] + " " * (found.span[1] - found.span[0]) + blank[found.span[1] :]
    spoken = blank
    for pattern, replacement in _SPOKEN:
        spoken = pattern.sub(replacement, spoken)
    best = max(_EXPRESSION.finditer(spoken), key=lambda hit: len(hit[0]), default=None)
    if best is None or not _is_sum(best[0], spoken):
        return None, None
    expression = "".join(best[0].split())
    expression = expression.rstrip("(") + ")" * max(0, expression.count("(") - expression.count(")"))
    digits = re.findall(r"\d+(?:\.\d+)?", best[0])
    return expression, _span_of(digits, blank)


def _is_sum(expression: str, text: str) -> bool:
    """Whether it is arithmetic: a lone hyphen or slash between numbers may be a range, a score or a ratio."""
    return bool(re.search(r"[*+%(]|\s[-/]\s", expression) or _CALCULATE.search(text))


def _span_of(digits: list[str], text: str) -> Span | None:
    """Return the span from the first to the last of these numbers, in order."""
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "\0", text)  # keeps the length
    pattern = r"\D{0,20}".join("\0?".join(map(re.escape, number)) for number in digits)
    hit = re.search(pattern, plain)
    return hit.span() if hit else None
