"""Finds words and values in the user's question: expressions, files, addresses, quotations, numbers, dates, names."""

import re
import unicodedata
from collections.abc import Iterable
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

Span = tuple[int, int]

MAX_QUESTION_CHARACTERS = 2_000
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_URL = re.compile(r"https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_FILE = re.compile(r"(?<![\w@])(?:[\w.~-]*/)*[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,4}\b(?!\.\w|/)")
_NO_FILES = frozenset({"e.g", "i.e"})
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_DAYS = {"today": 0, "tomorrow": 1, "yesterday": -1}
_DAY = re.compile(r"\b(today|tomorrow|yesterday)\b", re.IGNORECASE)
_CODE = re.compile(
    r"#\w+|\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*\b|\b[A-Z]{2,}(?:-[A-Z0-9]+)+\b"
)
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][\w’-]*(?: (?:(?:of|de|la|van|von|the) )?[A-Z][\w’-]*)*")
"""Capitalised words inside a sentence."""
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.])[-−]?\d+(?:\.\d+)?(?![\w])")
_SPOKEN = (
    (re.compile(r"(\d)\s*(?:multiplied by|times|[x×·])\s*(?=[\d(])", re.IGNORECASE), r"\1*"),
    (re.compile(r"(\d)\s*(?:divided by|over|÷)\s*(?=[\d(])", re.IGNORECASE), r"\1/"),
    (re.compile(r"(\d)\s*plus\s*(?=[\d(])", re.IGNORECASE), r"\1+"),
    (re.compile(r"(\d)\s*minus\s*(?=[\d(])", re.IGNORECASE), r"\1-"),
    (re.compile(r"(\d)\s*(?:to the power of|\^)\s*(?=[\d(])", re.IGNORECASE), r"\1**"),
    (re.compile(r"(\d)\s*(?:%|percent)\s*of\s*(?=[\d(])", re.IGNORECASE), r"\1/100*"),
    (re.compile(r"(?<=\d),(?=\d{3}\b)"), ""),
    (re.compile(r"[−–]"), "-"),
)
_OPERAND = r"(?:[a-z]{2,5}\()?[-(]*\d+(?:\.\d+)?\)*"
_EXPRESSION = re.compile(rf"(?<![\w.]){_OPERAND}(?:\s*(?:\*\*|[-+*/%])\s*{_OPERAND})+|\b[a-z]{{2,5}}\(\d+(?:\.\d+)?\)")
_CALCULATE = re.compile(
    r"\b(calc\w*|comput\w*|what(?:'s| is| are)?|how much|evaluate|solve|result|sum|equals?)\b|=", re.IGNORECASE
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_VOWEL = re.compile(r"[aeiouy]")
_ENDINGS = """ations ation izing ising ings ing ments ment ers er ors or ies ied es ed ly s"""
_SHORTEST = 3
_STOP = """
a an and any are as at be been but by can could did do does doing done for from get give had has have he help her here
hers him his how i if in into is it its just kindly know let like may me might mine more most much must my need no not
now of off on once only or other our out over own per please shall she should show so some such tell than thank thanks
that the their them then there these they this those to too until up us use using very want was we were what whats
when where which while who whom whose why will with would you your about make also all each bitte danke der die das
ein eine ist und oder wie was wo wer
"""
STOP = frozenset(_STOP.split())
"""Words that say nothing about the subject of a question."""
_SAME = {
    "clock": "time",
    "day": "date",
    "graph": "chart",
    "plot": "chart",
    "mail": "email",
    "picture": "image",
    "photo": "image",
    "forecast": "weather",
    "temperature": "weather",
    "sunny": "weather",
    "summarize": "summarise",
    "analyze": "analyse",
}


class Found(NamedTuple):
    """A value, and the piece of the question that holds it; an empty span: it is from elsewhere."""

    value: Any
    span: Span = (0, 0)


class Evidence(NamedTuple):
    """The values of one question, in reading order. Values of different kinds may overlap; a span is used once."""

    text: str
    expression: str | None
    quoted: list[Found]
    urls: list[Found]
    emails: list[Found]
    files: list[Found]
    dates: list[Found]
    codes: list[Found]
    names: list[Found]
    numbers: list[Found]


@lru_cache(maxsize=4096)
def words(text: str) -> tuple[str, ...]:
    """Return the words of a text in order: lower case, without accents, camelCase and snake_case split."""
    plain = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return tuple(word.lower() for word in _WORD.findall(_CAMEL.sub(" ", plain)))


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Return a rough stem: `calculate`, `calculator` and `calculation` are one word. Synonyms share a stem."""
    word = _SAME.get(word, word)
    for ending in _ENDINGS.split():
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= _SHORTEST and _VOWEL.search(rest):
            word = rest
            break
    if len(word) > _SHORTEST + 1:
        word = word.removesuffix("at").removesuffix("e").removesuffix("y")
    return word


@lru_cache(maxsize=4096)
def stems(text: str) -> frozenset[str]:
    """Return the stems of the words that carry meaning."""
    return frozenset(stem(word) for word in words(text) if word not in STOP)


def gather(text: str, asked_on: str | None = None) -> Evidence:
    """Find every value in the question; in a very long question, in its beginning."""
    whole, text = text, text[:MAX_QUESTION_CHARACTERS]
    urls, emails, dates = _all(_URL, text), _all(_EMAIL, text), _all(_DATE, text)
    if asked_on:
        for hit in _DAY.finditer(text):
            day = date.fromisoformat(asked_on) + timedelta(days=_DAYS[hit[0].lower()])
            dates.append(Found(day.isoformat(), hit.span()))
        dates.sort(key=lambda each: each.span)
    quoted = [Found(next(group for group in hit.groups() if group), hit.span()) for hit in _QUOTED.finditer(text)]
    files = [found for found in _outside(_all(_FILE, text), urls + emails) if found.value.lower() not in _NO_FILES]
    expression = _expression(_DATE.sub(" ", text))
    taken = urls + emails + files + dates
    codes = _outside(_all(_CODE, text), taken)
    numbers = []
    for found in _outside(_all(_NUMBER, text), taken + codes) if expression is None else ():
        number = found.value.replace(",", "").replace("−", "-")
        whole_number = number.lstrip("-").isdecimal()
        numbers.append(found._replace(value=int(number) if whole_number else float(number)))
    names = _outside(_all(_NAME, text), urls + emails + files)
    return Evidence(whole, expression, quoted, urls, emails, files, dates, codes, names, numbers)


def _all(pattern: re.Pattern[str], text: str) -> list[Found]:
    return [Found(hit[0], hit.span()) for hit in pattern.finditer(text)]


def _outside(pieces: Iterable[Found], taken: list[Found]) -> list[Found]:
    return [
        found
        for found in pieces
        if not any(other.span[0] <= found.span[0] and found.span[1] <= other.span[1] for other in taken)
    ]


def _expression(text: str) -> str | None:
    """Return the longest arithmetic expression in program notation."""
    for pattern, replacement in _SPOKEN:
        text = pattern.sub(replacement, text)
    best = max((hit[0] for hit in _EXPRESSION.finditer(text)), key=len, default="")
    # A lone hyphen or slash between numbers may be a range, a score or a ratio.
    if not best or not (re.search(r"[*+%(]|\s[-/]\s", best) or _CALCULATE.search(text)):
        return None
    expression = "".join(best.split()).rstrip("(")
    return expression + ")" * max(0, expression.count("(") - expression.count(")"))
