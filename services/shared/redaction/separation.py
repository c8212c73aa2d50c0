"""Separate a tool's result: the observation for the model, the artifacts, the sources.

Value and schema are walked together. An annotated value is taken out with everything inside it. Redaction and
collection are the same walk, so exactly the values that are hidden from the model are kept for people.

Values are named by their dotted path, `items[0].blob`. A key that would make the path ambiguous is quoted as in JSON:
`files["report.pdf"].blob`. The complete result is `$`.

Sources are the objects, at any depth, whose model is annotated `produces_sources`. `source_field` on a property names
the field of `Source` that it fills; without it, equal names match. A source needs a title. A field of the wrong type is
left out.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contracts.artifacts import ArtifactRef
from contracts.runs.payload import Source
from contracts.wire.base import MAX_EVENT_INLINE_BYTES
from services.shared.redaction.annotations import MAX_DEPTH, Annotations, Node, Schema, View, Views, read_annotations
from services.shared.redaction.json_values import (
    declared_bytes,
    is_placeholder,
    placeholder,
    placeholder_of,
    well_formed,
    wire_size,
)

TEXT_CHARACTERS = 4096
"""The longest text of a source. A longer snippet is cut, since sources travel in messages."""


def extract_sources(value: Any, schema: Schema | Annotations) -> list[Source]:
    """Return the sources of a result in reading order, each (title, url, snippet) once, in total at most 128 KiB."""
    found = unique_sources(_walk(Views(), value, [read_annotations(schema).root], 0))
    room = MAX_EVENT_INLINE_BYTES
    kept = []
    for source in found:
        room -= wire_size(source.model_dump())
        if room < 0:
            break
        kept.append(source)
    return kept


def unique_sources(sources: Iterable[Source]) -> list[Source]:
    """Drop repetitions: among sources with equal title, url and snippet the first stays, whatever their scores."""
    kept: dict[tuple[str, str | None, str | None], Source] = {}
    for source in sources:
        kept.setdefault((source.title, source.url, source.snippet), source)
    return list(kept.values())


def source_of(fields: Mapping[str, Any]) -> Source | None:
    """Build a source from fields of a tool or a model; None without a title."""
    title = _text(fields.get("title"))
    if title is None or not title.strip():
        return None
    url, snippet, score = (fields.get(key) for key in ("url", "snippet", "relevance_score"))
    relevance_score = None
    if isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score):
        relevance_score = float(score)
    return Source(title=title, url=_text(url), snippet=_text(snippet), relevance_score=relevance_score)


def _walk(views: Views, value: Any, nodes: list[Node], depth: int) -> Iterator[Source]:
    if depth > MAX_DEPTH or not isinstance(value, Mapping | list | tuple) or not any(node.cites for node in nodes):
        return
    view = views.of(nodes, value)
    if isinstance(value, Mapping):
        if any(node.produces_sources for node in view.applying):
            source = source_of(_fields(views, value, view))
            if source is not None:
                yield source
        for key, item in value.items():
            yield from _walk(views, item, views.of_key(view, value, key), depth + 1)
    else:
        for index, item in enumerate(value):
            yield from _walk(views, item, views.of_index(view, value, index), depth + 1)


def _fields(views: Views, value: Mapping[str, Any], view: View) -> dict[str, Any]:
    """Map an object's properties to fields of Source.

    A property with `source_field` takes precedence over one of the same name.
    """
    renamed: dict[str, Any] = {}
    same: dict[str, Any] = {}
    declared = dict.fromkeys(key for node in view.applying for key in node.properties)
    for key in declared:
        if value.get(key) is None or is_placeholder(value[key]):
            continue
        nodes = views.of(views.of_key(view, value, key), value[key]).applying
        target = next((node.source_field for node in nodes if node.source_field), None)
        if target is None:
            same[key] = value[key]
        else:
            renamed.setdefault(target, value[key])
    return {**same, **renamed}


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return well_formed(value if len(value) <= TEXT_CHARACTERS else value[:TEXT_CHARACTERS] + "…")


Path = tuple[str | int, ...]

ROOT = "$"
_PLAIN = re.compile(r'[^.\[\]"$\s\x00-\x1f][^.\[\]"\x00-\x1f]*')

Streams = Sequence[str] | None
"""Stream ids of a call in the order of their first chunk. None: unknown, so a declared `stream_id` is trusted."""


def dotted(path: Path) -> str:
    """Return the canonical name of a path."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text or ROOT


@dataclass(frozen=True, slots=True)
class SeparatedResult:
    """A separated result. `artifacts` maps dotted paths to original values; binary ones are bytes.

    `claimed`: dotted path -> id of the stream that showed the field; `unclaimed`: ids of streams that belong to no
    field.
    """

    observation: Any
    artifacts: dict[str, Any]
    sources: list[Source]
    unclaimed: tuple[str, ...] = ()
    claimed: dict[str, str] = field(default_factory=dict)


def separate(value: Any, schema: Schema | Annotations, *, streamed: Streams = None) -> SeparatedResult:
    """Separate a complete result: a placeholder takes the place of each annotated value for the model; null stays null.

    The input is not changed; other parts are shared.
    """
    annotations = read_annotations(schema)
    names = _StreamNames(annotations, streamed)

    def hide(path: Path, hidden: Any, nodes: list[Node]) -> Any:
        if hidden is None or is_placeholder(hidden):
            return hidden
        stream = names.of(path, nodes)
        if isinstance(hidden, ArtifactRef):
            return placeholder_of(hidden, stream=stream)
        return placeholder(_decoded(hidden, nodes), stream=stream)

    observation = _Walk(hide).step(value, [annotations.root], ())
    return SeparatedResult(
        observation, collect(value, annotations), extract_sources(value, annotations), names.unclaimed(), names.claimed
    )


def collect(value: Any, schema: Schema | Annotations) -> dict[str, Any]:
    """Return each annotated value under its dotted path, including null but not placeholders.

    Text declared as binary becomes bytes.
    """
    found: dict[str, Any] = {}

    def keep(path: Path, annotated: Any, nodes: list[Node]) -> Any:
        if not is_placeholder(annotated):
            found[dotted(path)] = _decoded(annotated, nodes)
        return annotated

    _Walk(keep).step(value, [read_annotations(schema).root], ())
    return found


def restore(value: Any, artifacts: Mapping[str, Any], path: Path = ()) -> Any:
    """Replace the placeholders of a redacted observation, or of its part at `path`, by artifacts or references."""
    if not artifacts:
        return value
    if is_placeholder(value):
        kept = artifacts.get(dotted(path), value)
        return kept.model_dump(mode="json", exclude_none=True) if isinstance(kept, ArtifactRef) else kept
    if len(path) < MAX_DEPTH and isinstance(value, Mapping):
        return {key: restore(item, artifacts, (*path, key)) for key, item in value.items()}
    if len(path) < MAX_DEPTH and isinstance(value, list):
        return [restore(item, artifacts, (*path, index)) for index, item in enumerate(value)]
    return value


class _Walk:
    """Walks through one value and lets `visit` replace annotated values."""

    def __init__(self, visit: Callable[[Path, Any, list[Node]], Any]) -> None:
        self._visit = visit
        self._views = Views()

    def step(self, value: Any, nodes: list[Node], path: Path) -> Any:
        if not any(node.hides for node in nodes):
            return value
        view = self._views.of(nodes, value)
        if any(node.artifact or node.unknown for node in view.applying):
            return self._visit(path, value, view.applying)
        if not isinstance(value, Mapping | list | tuple) or not value:
            return value
        if len(path) >= MAX_DEPTH:
            return self._visit(path, value, view.applying)
        if isinstance(value, Mapping):
            changed = {
                key: self.step(item, self._views.of_key(view, value, key), (*path, str(key)))
                for key, item in value.items()
            }
            return changed if any(changed[key] is not item for key, item in value.items()) else value
        items = [
            self.step(item, self._views.of_index(view, value, index), (*path, index))
            for index, item in enumerate(value)
        ]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value


class _StreamNames:
    """The stream of each field: the declared one, otherwise a stream of the call that no field declares or uses yet."""

    def __init__(self, annotations: Annotations, streamed: Streams) -> None:
        self._streamed = streamed
        self.claimed: dict[str, str] = {}
        """Dotted path -> the stream of the field there."""
        self._free = [stream for stream in dict.fromkeys(streamed or ()) if stream not in annotations.stream_ids]

    def of(self, path: Path, nodes: list[Node]) -> str | None:
        if not any(node.stream for node in nodes):
            return None
        name = self._find(path, nodes)
        if name is not None:
            self.claimed[dotted(path)] = name
        return name

    def unclaimed(self) -> tuple[str, ...]:
        """Return the streams that belong to no field."""
        claimed = set(self.claimed.values())
        return tuple(stream for stream in dict.fromkeys(self._streamed or ()) if stream not in claimed)

    def _find(self, path: Path, nodes: list[Node]) -> str | None:
        declared = next((node.stream_id for node in nodes if node.stream_id), None)
        if self._streamed is None:
            return declared
        if declared:
            return declared if declared in self._streamed else None
        name = path[-1] if path else None
        chosen = name if name in self._free else next(iter(self._free), None)
        if chosen is not None:
            self._free.remove(str(chosen))
        return None if chosen is None else str(chosen)


def _decoded(value: Any, nodes: list[Node]) -> Any:
    """Return the bytes of a text that its schema declares as binary; other values as they are."""
    if isinstance(value, str) and any(node.binary for node in nodes):
        raw = declared_bytes(value)
        return value if raw is None else raw
    return value
