"""A tool that finds passages: `search_documents {query: "how long is a finished run kept"}`.

Markdown and text files of a folder are cut into sections, and the sections are ranked by BM25 (Robertson and Zaragoza
2009), with words of a heading counted twice. What it finds are sources: the annotations of `Passage` make them the
citations of the run's answer.

Documents are read from the data folder only: RUNWIRE_DATA, else examples/demo/data. They are read again when a file has
changed.
"""

import asyncio
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from runwire import ToolError, tool

MAX_FILES = 2_000
MAX_BYTES = 1_000_000
"""Of one file; larger ones are left out."""
SNIPPET = 300
"""Characters."""

_K1, _B = 1.5, 0.75
"""How fast a repeated word stops counting, and how much a long section is held against it: the values of the paper."""
_HEADING_WEIGHT = 2

_WORD = re.compile(r"[^\W_]+")
_HEADING = re.compile(r"^(#{1,6})\s+(.+?)\s*#*$")
_ENDINGS = ("ations", "ation", "yings", "ying", "ings", "ing", "ied", "ies", "ed", "es", "s", "e", "y")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a about an and are as at be been by can could did do does for from had has have how i if in into is it its me "
        "my of on or our please show should so tell than that the their them then there these they this to was we were "
        "what when where which who why will with would you your"
    )
)


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document under one heading. `place` is its path and fragment, as `retention.md#finished-runs`."""

    title: str
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Index:
    """Sections, how often each term is in each of them, and in how many it is at all."""

    sections: tuple[Section, ...]
    terms: tuple[Counter[str], ...]
    spread: Counter[str]
    mean_length: float


def terms_of(text: str) -> list[str]:
    """The words that count, without their endings: `queues` and `queue` are one term."""
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            stem = word.removesuffix(ending)
            doubled = ending in {"ing", "ings", "ed"} and stem[-1] == stem[-2] and stem[-1] not in "lsz"
            return stem[:-1] if doubled else stem
    return word


def sections_of(path: str, text: str) -> Iterator[Section]:
    """Cut a document at its headings; a heading of the first level is the title of all that follows."""
    title, heading, fenced = Path(path).stem.replace("-", " ").capitalize(), "", False
    lines: list[str] = []
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        found = None if fenced else _HEADING.match(line)
        if found is None:
            lines.append(line)
            continue
        yield from _section(path, title, heading, lines)
        lines = []
        title, heading = (found[2], "") if found[1] == "#" else (title, found[2])
    yield from _section(path, title, heading, lines)


def _section(path: str, title: str, heading: str, lines: list[str]) -> Iterator[Section]:
    text = " ".join(" ".join(lines).split())
    if text:
        yield Section(
            f"{title}: {heading}" if heading else title, f"{path}#{_fragment(heading)}" if heading else path, text
        )


def _fragment(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))


def index_of(sections: list[Section]) -> Index:
    """Count the terms of every section."""
    terms = []
    for section in sections:
        counts = Counter(terms_of(section.text))
        for term in terms_of(section.title):
            counts[term] += _HEADING_WEIGHT
        terms.append(counts)
    spread = Counter(term for counts in terms for term in counts)
    mean = sum(counts.total() for counts in terms) / max(1, len(terms))
    return Index(tuple(sections), tuple(terms), spread, mean)


def ranked(index: Index, query: str) -> list[tuple[float, Section]]:
    """Score the sections that hold a term of the query; best first, equals by place."""
    wanted = dict.fromkeys(terms_of(query))
    scores = []
    for section, counts in zip(index.sections, index.terms, strict=True):
        length = _K1 * (1 - _B + _B * counts.total() / index.mean_length)
        score = sum(
            _rarity(index, term) * counts[term] * (_K1 + 1) / (counts[term] + length)
            for term in wanted
            if term in counts
        )
        if score > 0:
            scores.append((score, section))
    return sorted(scores, key=lambda found: (-found[0], found[1].place))


def _rarity(index: Index, term: str) -> float:
    return math.log(1 + (len(index.sections) - index.spread[term] + 0.5) / (index.spread[term] + 0.5))


def snippet_of(text: str, query: str) -> str:
    """The whole sentences, at most 300 characters, that hold the most words of the query; the earliest of equals."""
    wanted = set(terms_of(query))
    sentences = re.split(r"(?<=[.!?:])\s+", text)
    windows = [_window(sentences[first:]) for first in range(len(sentences))]
    return max(windows, key=lambda window: len(wanted.intersection(terms_of(window))))


def _window(sentences: list[str]) -> str:
    shown = sentences[0]
    for sentence in sentences[1:]:
        if len(shown) + len(sentence) >= SNIPPET:
            break
        shown += " " + sentence
    return shown if len(shown) <= SNIPPET else shown[: SNIPPET - 1].rsplit(" ", 1)[0] + "…"


def data_folder() -> Path:
    """Where documents are read from."""
    return Path(os.environ.get("RUNWIRE_DATA") or Path(__file__).parent / "data").resolve()


def load(folder: str, data: Path) -> Index:
    """The index of a folder inside `data`. Raises ToolError."""
    try:
        root = (data / folder).resolve()  # Follows symbolic links, so that none leads out.
        found = sorted(root.rglob("*")) if root.is_relative_to(data) and root.is_dir() else []
    except (OSError, ValueError):  # A name too long, with a NUL, or of a loop of links.
        found = []
    files = []
    for path in found:
        if path.suffix.lower() in {".md", ".txt"} and path.is_file() and path.resolve().is_relative_to(data):
            state = path.stat()
            if state.st_size <= MAX_BYTES:
                files.append((str(path), path.relative_to(data).as_posix(), state.st_mtime_ns, state.st_size))
    if not files:
        raise ToolError(f"there are no documents in {folder[:80]!r}; try the folder 'docs'")
    return _indexed(tuple(files[:MAX_FILES]))


@lru_cache(maxsize=4)
def _indexed(files: tuple[tuple[str, str, int, int], ...]) -> Index:
    """Time and size are part of the key, so that a changed file is read again."""
    sections: list[Section] = []
    for path, name, _, _ in files:
        sections += sections_of(name, Path(path).read_text(encoding="utf-8", errors="replace"))
    return index_of(sections)


class Search(BaseModel):
    """What to look for."""

    query: str = Field(min_length=1, max_length=500, description="a few words or a question")
    limit: int = Field(default=5, ge=1, le=20, description="passages, at most")
    folder: str = Field(default="docs", description="a folder of the data folder")


class Passage(BaseModel):
    """A part of a document: a source of the answer."""

    model_config = ConfigDict(json_schema_extra={"produces_sources": True})

    title: str
    url: str
    snippet: str
    relevance: float = Field(
        description="1 for the best passage", json_schema_extra={"source_field": "relevance_score"}
    )


class SearchResult(BaseModel):
    """What was found."""

    answer: str
    passages: list[Passage]


def search(query: str, index: Index, limit: int = 5) -> SearchResult:
    """Find the best passages."""
    found = ranked(index, query)
    if not found:
        return SearchResult(answer=f"Nothing about {query!r} was found in {len(index.sections)} sections.", passages=[])
    best = found[0][0]
    passages = [
        Passage(
            title=section.title,
            url=section.place,
            snippet=snippet_of(section.text, query),
            relevance=round(score / best, 3),
        )
        for score, section in found[:limit]
    ]
    return SearchResult(answer=f"{passages[0].title}: {passages[0].snippet}", passages=passages)


def _searched(args: Search) -> SearchResult:
    return search(args.query, load(args.folder, data_folder()), args.limit)


@tool(
    desc="Search the documents about running message queues, agents and their data; gives passages with their sources",
    tags=["search", "documents"],
    idempotent=True,
    side_effects="read",
    timeout_s=30,
)
async def search_documents(args: Search) -> SearchResult:
    """Answer with the passages that fit the question best."""
    return await asyncio.to_thread(_searched, args)
