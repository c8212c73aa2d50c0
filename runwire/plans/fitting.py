"""Whether the values of one schema fit where another schema is wanted."""

from typing import NamedTuple

from .folding import Schema
from .json_types import Types, fits, may_be_null, only_arrays
from .schemas import Fields, Part, Place

ITEM_LEVELS = 3
"""Levels of lists whose items are compared; members of objects are not."""


class Fit(NamedTuple):
    """How the types of a source compare with those of a target."""

    source: Types
    target: Types
    fits: bool
    may_be_null: bool
    """The source may be null, or hold a null, where the target must not."""


def fit(source: Fields, given: Schema, target: Fields, wanted: Schema) -> Fit:
    """Compare a schema of `source` with one of `target`. Raises TooManySteps."""
    types = source.types(given), target.types(wanted)
    null = False
    for level in range(ITEM_LEVELS + 1):
        have, want = source.types(given), target.types(wanted)
        if not fits(have, want):
            return Fit(*types, fits=False, may_be_null=False)
        null = null or may_be_null(have, want)
        if level == ITEM_LEVELS or not (only_arrays(have) and only_arrays(want)):
            break
        items, taken = source.part(given, Part.ITEMS), target.part(wanted, Part.ITEMS)
        if items.place is not Place.DECLARED or taken.place is not Place.DECLARED:
            break
        given, wanted = items.schema, taken.schema
    return Fit(*types, fits=True, may_be_null=null)
