"""The arguments that a schema declares."""

from typing import NamedTuple

from services.shared.redaction.nodes import Schema, read_annotations
from services.shared.redaction.views import Views


class Arguments(NamedTuple):
    """The names that a tool declares, and whether it accepts others."""

    names: frozenset[str]
    others: bool


def arguments_of(schema: Schema) -> Arguments:
    """Return a tool's arguments.

    It accepts others if its schema allows them, or if it declares none and forbids none.
    """
    views = Views()
    view = views.of([read_annotations(schema).root], {})
    nodes = [*view.applying, *views.of(view.excluded, {}).applying]
    names = frozenset(name for node in nodes for name in node.properties)
    extras = [node.additional for node in nodes if node.additional]
    return Arguments(names, any(not extra.never for extra in extras) or not (names or extras))
