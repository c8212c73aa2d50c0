"""The only parser of model output. It returns one action, or an exact complaint."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple

from contracts.runs.decisions import PlannerAction
from contracts.runs.step_events import ReplyForm, ReplyShape
from services.planner.replies.actions.forms import five_field_deviation, two_field_deviation
from services.planner.replies.actions.names import ActionFormat
from services.planner.replies.actions.reading import Reading, Shape, read_object, shape_of
from services.planner.replies.actions.scan import Broken, Found, Scan, ThoughtEnds
from services.planner.replies.strict_json import NotJson, Reader, well_formed_object
from services.planner.replies.thoughts import said_in
from services.shared.redaction.json_values import well_formed

MAX_ALTERNATES = 16
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_CALLING = frozenset({"next_node", "args", "arguments", "parameters", "tool", "tool_args", "steps", "plan"})
"""Keys of an object that was meant as a call."""
EXCERPT_CHARACTERS = 40
MAX_STRICT_CHARACTERS = 20_000
"""Of an action that is parsed once more, to know whether it is strict JSON."""
_FIVE_FIELDS = frozenset({"thought", "plan", "join"})
_BETWEEN = re.compile(r"(?:[\s,;\[\]]|```\w*|(?:[-*•]|\d{1,3}[.)])\s)*")
"""What may stand between the actions of one list."""


def _expected(action_format: ActionFormat, tools: AbstractSet[str], *, tasks: bool) -> str:
    """Return the expected form of a reply. It names only what this run allows."""
    if action_format == "legacy":
        node = ('a tool, "task" or null' if tasks else "a tool or null") if tools else "null"
        form = f'{{"thought": ..., "next_node": <{node}>, "args": {{...}}, "plan": null, "join": null}}'
    else:
        words = '"final_response", "plan" or "task"' if tasks else '"final_response" or "plan"'
        node = f"<a tool, {words}>" if tools else '"final_response"'
        form = f'{{"next_node": {node}, "args": {{...}}}}'
    return f"Answer with one JSON object {form} and nothing beside it."


class Normalized(NamedTuple):
    """The result of parsing a reply: `action`, or else `error`.

    `error`: `unparseable` (no object, or a broken one) or `no_action` (an object that is no action). `complaint` tells
    the model what is wrong and what is expected; `cause` is its first part, what is wrong. `alternates`: the further
    actions of the reply, in order, also beside an error. `together`: the alternates that stand right behind the action
    in the same form, without the ones that repeat it. `reasoning`: None where the model gave none. `warnings` name
    what was dropped. `was_action`: the reply is no action, but a part of it was meant as one: it must not be shown.
    `is_unopened`: a thought precedes the action whose opening mark the reply leaves out. `form`: how the action was
    written, None where there is none.
    """

    action: PlannerAction | None
    reasoning: str | None
    alternates: tuple[PlannerAction, ...] = ()
    together: tuple[PlannerAction, ...] = ()
    error: Literal["unparseable", "no_action"] | None = None
    complaint: str = ""
    warnings: tuple[str, ...] = ()
    was_action: bool = False
    cause: str = ""
    is_unopened: bool = False
    form: ReplyForm | None = None


def normalize_action(
    text_or_mapping: Any,
    reasoning_content: str | None = None,
    *,
    tools: AbstractSet[str] = frozenset(),
    action_format: ActionFormat = "auto",
    tasks: bool = False,
) -> Normalized:
    """Parse a reply of a model: its text, or an object that was parsed already. Never raises.

    Args:
        text_or_mapping: the text of the reply, or a mapping, or a list of mappings.
        reasoning_content: the model's reasoning as the provider gave it. It replaces a `thought` in the text.
        tools: the names that the model may call. A tool wins over an opcode that differs from its name by case only.
        action_format: `unified` accepts only the two-field form, `legacy` only actions of five fields.
        tasks: whether the run may start background tasks. Only the complaint depends on it.
    """
    native = well_formed(reasoning_content).strip() if reasoning_content else ""
    text = text_or_mapping if isinstance(text_or_mapping, str) else ""
    if not isinstance(text_or_mapping, str):  # What was parsed elsewhere is checked as strictly as any other.
        with suppress(TypeError, ValueError, RecursionError):
            text = json.dumps(text_or_mapping, allow_nan=False)
    if (normalized := _read_well_formed(text, native, tools, action_format)) is not None:
        return normalized
    text = _decoded(text)
    reply, nothing_else = _scanned(text, tools, skip_thoughts=True)
    # If there is nothing outside the thoughts, the model may have put its action inside.
    if nothing_else and not reply.broken and not any(reply.shapes.values()):
        reply, _ = _scanned(text, tools, skip_thoughts=False)
    result = _strict(reply, tools) if action_format == "unified" else _lenient(reply, tools, action_format)
    cause = f"{result.complaint[:1].upper()}{result.complaint[1:]}." if result.error else ""
    complaint = f"{cause} {_expected(action_format, tools, tasks=tasks)}" if cause else ""
    return result._replace(
        reasoning=native or result.reasoning, complaint=complaint, cause=cause, is_unopened=reply.is_unopened
    )


def _read_well_formed(
    text: str, native: str, tools: AbstractSet[str], action_format: ActionFormat
) -> Normalized | None:
    """Read one strict object with a node, as most replies are, as the full parse would. None for all others."""
    text = text.strip(" \t\r\n")
    read = well_formed_object(text, 0) if text.startswith('{"') and text.endswith("}") else None
    if (
        read is None
        or "next_node" not in read[0]
        or (action_format in _CHECKS and _CHECKS[action_format](read[0], tools))
    ):
        return None
    reading = read_object(read[0], tools)
    if reading.action is None:
        return None
    thought = native or (reading.thought if action_format != "unified" else None)
    form = ReplyForm(form=_shape(read[0]), rules=["adjusted"] * bool(reading.warnings))
    return Normalized(reading.action, thought, warnings=reading.warnings, form=form)


_CHECKS: Mapping[str, Callable[[Any, AbstractSet[str]], str]] = {
    "unified": two_field_deviation,
    "legacy": five_field_deviation,
}
"""Checks of the formats that accept one form only: each returns what deviates."""


@dataclass(frozen=True)
class _Reply:
    """The objects of a reply by shape, as many of each as can matter, and the broken one."""

    shapes: Mapping[Shape, Sequence[Found]]
    broken: Broken | None
    text: str
    first_fence: int | None
    is_unopened: bool

    @property
    def found(self) -> list[Found]:
        """The objects that may be actions: highest shape first, then in the order of the text."""
        return [*self.shapes[Shape.NODE], *self.shapes[Shape.CALL], *self.shapes[Shape.ANSWER]]

    @property
    def nothing(self) -> str:
        """The complaint about a reply without any object."""
        return "the reply holds no JSON object" if self.text.strip() else "the reply is empty"


def _decoded(text: str) -> str:
    """Return a text that was encoded twice, decoded once; any other unchanged."""
    bare = text.strip()
    if not bare.startswith('"\\"'):
        return text
    try:
        inner, end = Reader(bare).read_string(0)
    except NotJson:
        return text
    return inner if end == len(bare) and inner.endswith('"') else text


def _scanned(text: str, tools: AbstractSet[str], *, skip_thoughts: bool) -> tuple[_Reply, bool]:
    scan = Scan(text, skip_thoughts=skip_thoughts)
    shapes: dict[Shape, list[Found]] = {shape: [] for shape in Shape}
    broken: Broken | None = None
    is_unopened = False
    for item in scan.items():
        if isinstance(item, ThoughtEnds):
            shapes, broken = {shape: [] for shape in Shape}, None
            is_unopened = is_unopened or item.is_unopened
            continue
        shape = shape_of(item.value) if isinstance(item, Found) else Shape.OTHER
        if shape is Shape.ANSWER and isinstance(item, Found) and (_WORD.findall(item.lead) or [""])[-1] in tools:
            error = NotJson("an object stands behind the name of a tool", item.start)
            item = Broken(error, text, was_action=True)  # noqa: PLW2901
        if isinstance(item, Broken):
            if broken is None or (item.was_action and not broken.was_action):
                broken = item
            continue
        # After something broken, only an explicit action counts: other objects may be parts of what broke.
        kept = shapes[Shape.OTHER if item.doubted and shape is not Shape.NODE else shape]
        if len(kept) <= MAX_ALTERNATES:
            kept.append(item)
    if broken is None and scan.node is not None and (shapes[Shape.CALL] or shapes[Shape.ANSWER]):
        # A node outside of all objects is a piece of an action, and the objects may be its arguments.
        broken = Broken(NotJson("`next_node` stands outside of an object", scan.node), text, was_action=True)
    return _Reply(shapes, broken, text, scan.first_fence, is_unopened), scan.thoughts and not scan.cut


def _lenient(reply: _Reply, tools: AbstractSet[str], action_format: ActionFormat = "auto") -> Normalized:
    found = reply.found
    if reply.broken and (reply.broken.was_action or not found) and not reply.shapes[Shape.NODE]:
        was_action = reply.broken.was_action
        return Normalized(None, None, error="unparseable", complaint=_place(reply.broken), was_action=was_action)
    if not found:
        others = reply.shapes[Shape.OTHER]
        if not others:
            return Normalized(None, None, error="unparseable", complaint=reply.nothing)
        found = list(others)
    if action_format == "legacy" and reply.found:
        wrong = five_field_deviation(found[0].value, tools)
        found = [item for item in found if not five_field_deviation(item.value, tools)]
        if wrong:
            alternates = _alternates(Reading(), sorted(found, key=lambda item: item.start), tools)
            return Normalized(None, None, alternates, error="no_action", complaint=wrong, was_action=True)
    first = read_object(found[0].value, tools)
    together = _alternates(first, _together(reply.text, found), tools)
    alternates = _alternates(first, sorted(found[1:], key=lambda item: item.start), tools) if reply.found else ()
    return Normalized(
        first.action,
        first.thought or _reasoning(reply, found[0]),
        alternates,
        together,
        None if first.action else "no_action",
        first.complaint,
        first.warnings,
        was_action=first.action is None and any(not _CALLING.isdisjoint(item.value) for item in found),
        form=_form(reply, found[0], first.warnings, is_several=bool(together)) if first.action else None,
    )


def _shape(obj: Mapping[str, Any]) -> ReplyShape:
    if "next_node" not in obj:
        return "foreign"
    return "unified" if _FIVE_FIELDS.isdisjoint(obj) else "legacy"


def _form(reply: _Reply, found: Found, warnings: Sequence[str], *, is_several: bool) -> ReplyForm:
    """Return how an action was written, and what was needed to read it."""
    written = reply.text[found.start : found.end]
    try:
        is_strict = len(written) > MAX_STRICT_CHARACTERS or bool(json.loads(written))
    except (ValueError, RecursionError):
        is_strict = False
    rules = {
        "unopened_thought": reply.is_unopened,
        "code_fence": found.fenced,
        "text_around": not found.fenced and reply.text.strip() != written.strip(),
        "lenient_json": not is_strict,
        "several_actions": is_several,
        "adjusted": bool(warnings),
    }
    return ReplyForm(form=_shape(found.value), rules=[rule for rule, is_needed in rules.items() if is_needed])


def _alternates(first: Reading, others: Iterable[Found], tools: AbstractSet[str]) -> tuple[PlannerAction, ...]:
    """Return the further actions: other calls of the first object, then the other objects."""
    values = [*first.further[:MAX_ALTERNATES], *(item.value for item in others)][:MAX_ALTERNATES]
    return tuple(reading.action for value in values if (reading := read_object(value, tools)).action)


def _together(text: str, found: Sequence[Found]) -> Iterator[Found]:
    """Yield the objects that follow the first one with nothing but punctuation in between: one list of actions.

    What stands behind prose may be made up from results that the model has not seen.
    """
    shape = shape_of(found[0].value)
    for before, item in pairwise(found):
        if shape_of(item.value) is not shape or _BETWEEN.fullmatch(text[before.end : item.start]) is None:
            return
        if item.value != before.value:
            yield item


def _strict(reply: _Reply, tools: AbstractSet[str]) -> Normalized:
    """Accept only the two-field form, in strict JSON, with no other object in the reply."""
    objects = sorted(chain.from_iterable(reply.shapes.values()), key=lambda item: item.start)
    if reply.broken or not objects:
        complaint = _place(reply.broken) if reply.broken else reply.nothing
        was_action = reply.broken is not None and reply.broken.was_action
        return Normalized(None, None, error="unparseable", complaint=complaint, was_action=was_action)
    only = objects[0]
    reasoning = _reasoning(reply, only)
    try:
        value, _ = Reader(reply.text).read(only.start)
    except NotJson as error:
        complaint = _place(Broken(error, reply.text, was_action=True))
        return Normalized(None, reasoning, error="unparseable", complaint=complaint)
    complaint = two_field_deviation(value, tools) if len(objects) == 1 else "the reply holds more than one object"
    if complaint:
        return Normalized(None, reasoning, error="no_action", complaint=complaint)
    reading = read_object(only.value, tools)
    form = _form(reply, only, reading.warnings, is_several=False) if reading.action else None
    return Normalized(reading.action, reasoning, warnings=reading.warnings, form=form)


def _reasoning(reply: _Reply, chosen: Found) -> str | None:
    """Return the text before the first fence, if the action is in one, else before the first object, without marks."""
    if chosen.fenced and reply.first_fence is not None:
        end = reply.first_fence
    elif reply.broken is None:
        end = min(item.start for items in reply.shapes.values() for item in items)
    else:
        return None
    return said_in(well_formed(reply.text[:end]).lstrip("\ufeff"))


def _place(broken: Broken) -> str:
    """Say where and why the JSON is invalid, for the model."""
    error, text = broken.error, broken.text
    line = text.count("\n", 0, error.position) + 1
    column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
    near = well_formed(text[max(0, error.position - EXCERPT_CHARACTERS) : error.position]).replace("\n", " ")
    return f"the reply is no valid JSON: {error.cause}, at line {line}, column {column}, after `{near}`"
