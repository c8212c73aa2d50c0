"""Follows the references of a JSON Schema inside its own document. Nothing is fetched."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from ..templates import is_index


def steps_of(reference: str) -> list[str]:
    """Return the names in a JSON pointer, which is percent-encoded as in a URL: `#/$defs/a~1b` has two."""
    return [step.replace("~1", "/").replace("~0", "~") for step in unquote(reference).split("/")[1:]]


def schema_at(root: Any, steps: list[str]) -> Any:
    """Return the schema to which the names in a JSON pointer lead; None: they lead nowhere, or to no schema."""
    place = root
    for step in steps:
        if isinstance(place, Mapping):
            place = place.get(step)
        elif isinstance(place, list) and is_index(step) and int(step) < len(place):
            place = place[int(step)]
        else:
            return None
    return place if isinstance(place, Mapping | bool) else None
