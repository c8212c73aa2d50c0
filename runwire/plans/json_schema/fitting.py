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
        says = ANY not in (have, want)
        # Of a source that may be null the other types count; a source of nulls alone needs null.
        needed = have if have == NULL else have - NULL
        if says and not all(name in want or (name == "integer" and "number" in want) for name in needed):
            return Fit(*types, fits=False, may_be_null=False)
        null = null or ("null" in have and says and "null" not in want)
        if level == ITEM_LEVELS or not (_only_arrays(have) and _only_arrays(want)):
            break
        items, taken = source.part(given, Part.ITEMS), target.part(wanted, Part.ITEMS)
        if items.presence is not Presence.DECLARED or taken.presence is not Presence.DECLARED:
            break
        given, wanted = items.schema, taken.schema
        have, want = source.types(given), target.types(wanted)
    return Fit(*types, fits=True, may_be_null=null)


def _only_arrays(types: Types) -> bool:
    """Whether values of these types are lists, or null."""
    return types - NULL == {"array"}
