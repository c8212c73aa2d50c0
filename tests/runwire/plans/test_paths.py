"""What templates may name in the output of a tool."""

from typing import Any

from runwire.plans import TemplatePath, template_paths
from runwire.plans.reading import MAX_PATHS

STRING = {"type": "string"}


def shown(schema: Any) -> list[str]:
    """Path, types and note of each in one line."""
    return [f"{path.path} {'|'.join(path.types)} {path.note}".strip() for path in template_paths(schema)]


def test_declared_paths_in_order() -> None:
    """Members, maps, lists and alternatives; names that no template can name are left out."""
    schema = {
        "properties": {
            "z": STRING,
            "a.b": STRING,
            "a b": STRING,
            "": STRING,
            "map": {"type": "object", "additionalProperties": {"properties": {"n": {"type": ["integer", "null"]}}}},
            "list": {"items": {"anyOf": [{"properties": {"u": STRING}}, STRING]}},
            "open": {"type": "object"},
            "any": {},
            "never": False,
        },
        "allOf": [{"properties": {"more": {"type": "boolean"}}}],
    }
    assert shown(schema) == [
        "z string",
        "map object",
        "map.<name> object",
        "map.<name>.n integer|null",
        "list array",
        "list.<number> object|string",
        "list.<number>.u string",
        "open object",
        "open.<name> any not declared",
        "any any",
        "more boolean",
    ]


def test_the_list_is_bounded() -> None:
    """The last entry says so."""
    found = template_paths({"properties": {f"f{number}": STRING for number in range(10_000)}})
    assert len(found) == MAX_PATHS + 1
    assert found[-1] == TemplatePath("", (), f"more than {MAX_PATHS} paths; the others are left out")
