"""Schemas that are small as text and large in what they expand to."""

from typing import Any


def chained(levels: int, *, by: str = "anyOf", leaf: Any = None, **beside: Any) -> dict[str, Any]:
    """Definitions that each refer twice to the one before: some 3 KB for 40 levels, which expand to 2^39 subschemas."""
    definitions: dict[str, Any] = {"a0": {"type": "string"} if leaf is None else leaf}
    for level in range(1, levels):
        part = {"$ref": f"#/$defs/a{level - 1}"}
        twice: Any = {"x": part, "x+": part} if by in {"patternProperties", "dependentSchemas"} else [part, part]
        definitions[f"a{level}"] = {by: twice, **beside}
    return {"type": "object", "properties": {"a": {"$ref": f"#/$defs/a{levels - 1}"}}, "$defs": definitions}
