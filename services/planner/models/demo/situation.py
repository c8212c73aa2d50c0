"""What the demo model decides from: the facts of a request, and the words and values of the user's question.

It reads no prompt text. Only two values come from the messages of a request: the size of an image, since only the
loaded message has the bytes, and the tools that a refused reply of this model named. Of the question it finds words,
expressions, files, addresses, quotations, numbers, dates and names.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from contracts.runs.events import InputAdded, Observed, PlannedCall, Repaired
from contracts.runs.pages import PageView
from contracts.tools.messages import ToolSpec
from runwire.plans import error_line
from services.planner.conversation.catalogue import shown_name
from services.planner.models.types import Facts, ModelRequest
from services.planner.run.calls.tasks import SPAWN
from services.planner.run.state.history import Conversation, Executed, Outcomes, PastTurn, Question
from services.planner.run.state.people import AddedInputs
from services.planner.sessions.tasks.reports import REPORTED_TASKS

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
    **dict.fromkeys(("graph", "plot"), "chart"),
    **dict.fromkeys(("picture", "photo"), "image"),
    **dict.fromkeys(("forecast", "temperature", "sunny"), "weather"),
    "clock": "time",
    "day": "date",
    "mail": "email",
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


MAX_DESCRIPTION_CHARACTERS = 1_000
MAX_TAGS = 12


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `name`: the one that a reply uses; `result`: the schema of its result."""

    name: str
    description: str
    args: dict[str, Any]
    tags: tuple[str, ...] = ()
    writes: bool = False
    result: dict[str, Any] | None = None

    @staticmethod
    def of(spec: ToolSpec) -> "Tool":
        """Return a tool of the run."""
        return Tool(
            shown_name(spec.name),
            spec.description[:MAX_DESCRIPTION_CHARACTERS],
            spec.input_schema,
            tuple(spec.tags[:MAX_TAGS]),
            spec.side_effects in {"write", "external"},
            spec.output_schema,
        )

    @property
    def properties(self) -> dict[str, Any]:
        """Its arguments by name."""
        properties = self.args.get("properties")
        return properties if isinstance(properties, dict) else {}

    @property
    def texts(self) -> set[str]:
        """The names of those that may be texts."""
        typed = {
            name: inner.get("type", "string") for name, inner in self.properties.items() if isinstance(inner, dict)
        }
        return {name for name, kind in typed.items() if kind in ("string", ["string", "null"])}


@dataclass(frozen=True, slots=True)
class Tried:
    """A tool call and its outcome. `reason` is set if it failed."""

    tool: str
    args: dict[str, Any]
    observation: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a decision. `tried`: the steps so far, each with its calls."""

    question: str = ""
    tools: tuple[Tool, ...] = ()
    asked_on: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    tried: tuple[tuple[Tried, ...], ...] = ()
    must_answer: bool = False
    text_alone: bool = False
    legacy: bool = False
    summarises: bool = False
    """The run is to summarise the turns in its context."""
    tasks: bool = False
    reported: list[dict[str, Any]] = field(default_factory=list)
    """The run is to tell what came of these tasks."""
    past: tuple[PastTurn, ...] = ()
    """Earlier turns of the conversation, oldest first."""
    images: tuple[str, ...] = ()
    """Type and size of each image that came with the question."""
    page: PageView | None = None
    stage: str = ""
    """Of the strategy `planned`: `plan` or `respond`."""
    rejected: tuple[str, ...] = ()
    """The errors of the plan; empty: it has none."""
    not_executed: tuple[str, ...] = ()
    """Tools of calls that were not executed, since an earlier one failed."""

    @property
    def spawned(self) -> list[Tried]:
        """The background tasks that the run has spawned."""
        return [tried for step in self.tried for tried in step if tried.tool == shown_name(SPAWN)]


def situation_of(request: ModelRequest) -> Situation:
    """Return the situation of a request. One without facts, such as a triage, has no question and no tools."""
    facts = request.facts
    question = next((item for item in facts.history if isinstance(item, Question)), None) if facts is not None else None
    if facts is None or question is None:
        return Situation()
    asked = question.request
    added = [item for item in facts.history if isinstance(item, InputAdded)]
    executed = next((item for item in reversed(facts.history) if isinstance(item, Executed)), None)
    plan = executed.step.plan if executed is not None else None
    rejected, left = [], []
    if executed is not None and plan is not None:
        rejected = [error_line(error, plan.calls) for error in executed.step.errors]
        left = plan.calls[len(executed.observed) :] if executed.end is not None else []
    return Situation(
        question=AddedInputs(read=added).question(asked.query).strip(),
        tools=tuple(map(Tool.of, facts.tools)),
        asked_on=datetime.fromtimestamp(asked.requested_at / 1000, UTC).date().isoformat(),
        context=asked.llm_context,
        tried=tuple(_tried(facts)),
        must_answer=facts.steps_left <= 1 or facts.tool_calls_left == 0,
        text_alone=facts.text_alone,
        legacy=facts.legacy,
        summarises=asked.cause == "summary",
        tasks=facts.tasks_allowed,
        reported=asked.llm_context.get(REPORTED_TASKS, []) if asked.cause == "report" else [],
        past=next((item.turns for item in facts.history if isinstance(item, Conversation)), ()),
        images=tuple(_images(request)) if question.images else (),
        page=facts.page,
        stage=facts.stage,
        rejected=tuple(rejected),
        not_executed=tuple(call.tool_name for call in left),
    )


def _tried(facts: Facts) -> Iterator[tuple[Tried, ...]]:
    for item in facts.history:
        if isinstance(item, Outcomes):
            calls = {call.call_id: call for call in item.step.calls}
            order = list(calls)
            observed = sorted(
                item.observed, key=lambda each: order.index(each.call_id) if each.call_id in calls else len(order)
            )
            yield tuple(_outcome(each, calls.get(each.call_id)) for each in observed)
        elif isinstance(item, Executed) and item.step.plan is not None:
            yield tuple(
                _outcome(each, PlannedCall(call_id=each.call_id, tool=call.tool_name, args=call.arguments))
                for each, call in zip(item.observed, item.step.plan.calls, strict=False)
            )
    for repaired in facts.rejected:
        reason = repaired.reason.strip().partition("\n")[0]
        if refused := tuple(Tried(tool, args, reason=reason) for tool, args in _calls(repaired)):
            yield refused


def _outcome(observed: Observed, call: PlannedCall | None) -> Tried:
    """Return a call with the text that a tool gave the model, else with what the model is shown of the result."""
    tool, args, failure = shown_name(observed.tool), call.args if call is not None else {}, observed.failure
    if observed.status != "succeeded":
        reason = (failure.reason or failure.code) if failure is not None else "no reason given"
        return Tried(tool, args, observed.observation, reason=reason)
    if observed.content is None and observed.responded is not None:
        return Tried(tool, args, f"{observed.tool} made the artifact {observed.responded.artifact_id}.")
    return Tried(tool, args, observed.observation if observed.content is None else observed.content)


def _calls(repaired: Repaired) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a refused reply, which this model wrote itself: name and arguments of each."""
    try:
        action = orjson.loads(repaired.reply)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(action, dict):
        return []
    given = action.get("args")
    args: dict[str, Any] = given if isinstance(given, dict) else {}
    steps = action.get("plan") or (args.get("steps") if action.get("next_node") == "plan" else None)
    if isinstance(steps, list):
        return [(str(step.get("node")), step.get("args") or {}) for step in steps if isinstance(step, dict)]
    node = action.get("next_node")
    return [(node, args)] if isinstance(node, str) and node != "final_response" else []


def _images(request: ModelRequest) -> Iterator[str]:
    # A message with images is an object.
    objects = (piece for piece in request.messages.pieces if not isinstance(piece, bytes))
    content = next((message["content"] for message in objects if message["role"] == "user"), None)
    for part in content if isinstance(content, list) else ():
        head, _, body = part.get("image_url", {}).get("url", "").partition(";base64,")
        if body:
            yield f"{head.removeprefix('data:')} of {len(body) * 3 // 4 - body[-2:].count('=')} bytes"
