"""Replaces the templates in the arguments of a call by the values that they refer to.

Rule 1: one pass. A value that looks like a template is data.
Rule 2: keys are left alone, and so are templates inside longer strings.
Rule 3: values keep their types. They are inserted as they are, not copied: nobody may change them.
Rule 4: nothing recurses, and the size of what is inserted is bounded before anything is built of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runwire.plans.templates import Container, json_size, marked_strings
from runwire.plans.texts import shortened

from .templates import Template, is_index, parse_template

Reference = Callable[[int, tuple[str, ...], Any, tuple[str, ...]], Any]
"""Called with the number of a call, a path in its output, the value there, and the rest of the template's path. What it
returns takes the template's place, unless it is None."""


def holds_templates(arguments: Mapping[str, Any]) -> bool:
    """Whether a value at any depth is a template."""
    return any(parse_template(text) is not None for _, _, text in marked_strings(arguments))


class MissingOutputField(Exception):
    """The output of an earlier call lacks what a template refers to."""

    def __init__(self, index: int, field: str, template: str, argument: str) -> None:
        """`field`: dotted path up to and including the missing segment; `index`: of the call that lacks it."""
        super().__init__(f"the output of call {index} has no {shortened(field)}, which {shortened(template)} refers to")
        self.index = index
        self.field = field
        self.template = template
        self.argument = argument


class ArgumentsTooLarge(Exception):
    """The values that templates insert are together larger than allowed."""

    def __init__(self, limit: int) -> None:
        """`limit`: in bytes of compact JSON."""
        super().__init__(f"the values that templates insert have more than {limit:,} bytes together")
        self.limit = limit


def resolve(
    arguments: Mapping[str, Any],
    outputs: Sequence[Any],
    reference: Reference | None = None,
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """Return the arguments with each template replaced. `outputs`: of the calls so far, in order.

    Raises MissingOutputField, and ArgumentsTooLarge if the inserted values have more than `max_bytes` together.
    """
    result = dict(arguments)
    copies: dict[Container, Any] = {}
    sizes = _Sizes(max_bytes)
    for container, key, text in marked_strings(arguments):
        template = parse_template(text)
        if template is None:
            continue
        try:
            value = _value_at(template, outputs, reference)
        except _Missing as missing:
            raise MissingOutputField(template.index, missing.field, text, container.dotted(key)) from None
        sizes.add(value)
        _copy_of(container, result, copies)[key] = value
    return result


class _Missing(Exception):
    def __init__(self, path: Sequence[str]) -> None:
        super().__init__()
        self.field = ".".join(path)


def _value_at(template: Template, outputs: Sequence[Any], reference: Reference | None) -> Any:
    """Return what a template refers to. An explicit null is a value."""
    index, path = template.index, template.path
    if index >= len(outputs):
        raise _Missing(path[:1])
    value = outputs[index]
    for depth in range(len(path) + 1):
        instead = reference(index, path[:depth], value, path[depth:]) if reference else None
        if instead is not None:
            return instead
        if depth == len(path):
            break
        segment = path[depth]
        if isinstance(value, dict) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and is_index(segment) and int(segment) < len(value):
            value = value[int(segment)]
        else:
            raise _Missing(path[: depth + 1])
    return value


def _copy_of(container: Container, result: Any, copies: dict[Container, Any]) -> Any:
    """Return the copy of a container that the result holds; the copies of those around it are made first."""
    uncopied = []
    while container.parent is not None and container not in copies:
        uncopied.append(container)
        container = container.parent
    copy: Any = result if container.parent is None else copies[container]
    for each in reversed(uncopied):
        copy[each.key] = copies[each] = copy[each.key].copy()
        copy = copies[each]
    return copy


class _Sizes:
    """The size of all inserted values together; each distinct value is measured once."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._total = 0
        self._known: dict[int, int] = {}
        self._kept: list[Any] = []
        """What was measured, so that its identity stays its own."""

    def add(self, value: Any) -> None:
        if self._limit is None:
            return
        key = id(value)
        if key not in self._known:
            size = json_size(value)
            if size is None:
                raise ArgumentsTooLarge(self._limit)
            self._known[key] = size
            self._kept.append(value)
        self._total += self._known[key]
        if self._total > self._limit:
            raise ArgumentsTooLarge(self._limit)
