"""Whether the values of one schema fit where another schema is wanted.

Rule 1: a schema that does not say its types (`ANY`) fits everything.
Rule 2: `integer` fits `number`; nothing else is converted.
Rule 3: items of lists are compared, three levels deep; members of objects are not.
"""

from typing import NamedTuple

from .fields import Fields, Part, Presence
from .folding import Schema
from .json_types import ANY, NULL, Types

ITEM_LEVELS = 3


class Fit(NamedTuple):
    """How the types of a source compare with those of a target."""

    source: Types
    target: Types
    fits: bool
    may_be_null: bool
    """The source may be null, or hold a null, where the target must not."""


def fit(source: Fields, given: Schema, target: Fields, wanted: Schema) -> Fit:
    """Compare a schema of `source` with one of `target`. Raises TooManySteps."""
    types = have, want = source.types(given), target.types(wanted)
    null = False
    for level in range(ITEM_LEVELS + 1):
        if not _fits(have, want):
            return Fit(*types, fits=False, may_be_null=False)
        null = null or _may_be_null(have, want)
        if level == ITEM_LEVELS or not (_only_arrays(have) and _only_arrays(want)):
            break
        items, taken = source.part(given, Part.ITEMS), target.part(wanted, Part.ITEMS)
        if items.presence is not Presence.DECLARED or taken.presence is not Presence.DECLARED:
            break
        given, wanted = items.schema, taken.schema
        have, want = source.types(given), target.types(wanted)
    return Fit(*types, fits=True, may_be_null=null)


def _fits(source: Types, target: Types) -> bool:
    """Whether every type of a source but null is one that the target takes; a source of nulls alone needs null."""
    if ANY in (source, target):
        return True
    if source == NULL:
        return "null" in target
    return all(name in target or (name == "integer" and "number" in target) for name in source - NULL)


def _may_be_null(source: Types, target: Types) -> bool:
    """Whether a source may be null where the target must not."""
    return "null" in source and target != ANY and "null" not in target


def _only_arrays(types: Types) -> bool:
    """Whether values of these types are lists, or null."""
    return types - NULL == {"array"}
