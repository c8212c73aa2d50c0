"""Extract the sources from a tool's result: objects whose model is annotated `produces_sources`, at any depth.

`source_field` on a property names the field of `Source` that it fills; without it, equal names match. A source needs a
title. A field of the wrong type is left out, the others stay.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from contracts.runs.payload import Source
from contracts.wire.limits import MAX_EVENT_INLINE_BYTES
from services.shared.redaction.annotations import Annotations, Node, Schema, read_annotations
from services.shared.redaction.json_values import well_formed
from services.shared.redaction.placeholders import is_placeholder, wire_size
from services.shared.redaction.views import MAX_DEPTH, View, Views

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
