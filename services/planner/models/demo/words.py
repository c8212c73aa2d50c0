"""Makes the words of a question and of a tool comparable."""

import re
import unicodedata
from functools import lru_cache

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
    "mean": "average",
    "picture": "image",
    "photo": "image",
    "forecast": "weather",
    "temperature": "weather",
    "rain": "weather",
    "sunny": "weather",
    "summarize": "summarise",
    "analyze": "analyse",
}


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
