"""What a result says about its artifact: form, skill, type, fingerprint. The form and skill have vectors, too."""

import hashlib
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from runwire import ToolResponse, tool
from services.tool_runner.results.forms import artifact_type_of, fingerprint, form_of, skill_id_of, text_of


def standard(artifact: Any, **metadata: Any) -> dict[str, Any]:
    """A canonical result."""
    return {"artifact_id": "a-1", "artifact": artifact, "_metadata": metadata}


def standard_schema(artifact: Any, **more: Any) -> dict[str, Any]:
    """Its output schema."""
    return {"type": "object", "properties": {"artifact": artifact}, **more}


@pytest.mark.parametrize("missing", ["artifact_id", "artifact", "_metadata"])
def test_the_form_needs_three_members(missing: str) -> None:
    """Whatever else there is."""
    value = standard({}) | {"mcp_execution_id": "x"}
    assert form_of(value).name == "tool_response"
    del value[missing]
    assert form_of(value).name == "bare"
    assert form_of([value]).name == "bare"


def test_a_hidden_text_is_no_id() -> None:
    """The next place counts: what is read is the result as the model may see it."""
    hidden = "<artifact:str size=5B>"
    assert skill_id_of(standard({"skill_id": hidden}, skill_id="meta")) == "meta"
    assert skill_id_of(standard({"skill_id": hidden}, skill_id=hidden)) is None
    assert text_of({"skill_name": hidden}, "skill_name") is None


TABLE = {"type": "array", "items": {"type": "object"}}


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ({"x-artifact-type": "Table"}, None, "table"),
        ({"x-artifact-type": "Seating Plan"}, None, "seating plan"),
        (standard({"x-artifact-type": "chart"}), None, "chart"),
        (standard({"card": {"x-artifact-type": "card"}}), None, "card"),
        (standard({"x-artifact-type": "in data"}), standard_schema(TABLE), "in data"),
        (standard({"x-artifact-type": 7}), {"x-artifact-type": "FORM"}, "form"),
        (standard({"x-artifact-type": " "}), standard_schema({"x-artifact-type": "blog"}), "blog"),
        (standard({"x-artifact-type": "x" * 201}), None, None),
        (standard([]), standard_schema(TABLE), "table"),
        (standard([]), standard_schema({"type": ["array", "null"], "items": {"properties": {}}}), "table"),
        (standard({}), standard_schema({"properties": {"fields": {"type": "array"}}}), "form"),
        (standard({}), standard_schema({"properties": {"labels": {}, "datasets": {}}}), "chart"),
        (standard({}), standard_schema({"properties": {"labels": {}}}), None),
        (standard([1]), standard_schema({"type": "array", "items": {"type": "integer"}}), None),
        (standard([{"a": 1}]), standard_schema({"type": "array"}), "table"),
        (standard([{"a": 1}, 2]), None, None),
        (standard([]), None, None),
        ([{"a": 1}], None, "table"),
        ([], TABLE, "table"),
        ({"labels": []}, {"properties": {"labels": {}, "datasets": {}}}, "chart"),
        ({"artifact": [{"a": 1}]}, None, None),
        ("text", True, None),
        (standard({}), {"properties": ["odd"], "x-artifact-type": None}, None),
    ],
)
def test_the_type_of_an_artifact(value: Any, schema: Any, expected: str | None) -> None:
    """Named in the value, in the schema, told by the shape of the schema, or by that of the value; in this order."""
    assert artifact_type_of(value, schema) == expected


def test_references_of_the_schema_are_followed() -> None:
    """As pydantic writes them; one that leads nowhere, out of the document or in a circle tells nothing."""

    class Row(BaseModel):
        cells: list[str]

    class Seating(BaseModel):
        model_config = ConfigDict(json_schema_extra={"x-artifact-type": "Seating"})

        rows: list[Row]

    @tool
    async def seat() -> ToolResponse[Seating]:
        return ToolResponse(Seating(rows=[]))

    @tool
    async def rows() -> ToolResponse[list[Row]]:
        return ToolResponse([])

    assert artifact_type_of(standard({"rows": []}), seat.spec.output_schema) == "seating"
    assert artifact_type_of(standard([]), rows.spec.output_schema) == "table"
    for reference in ("#/$defs/none", "https://example.org/schema", "#/$defs/circle", 7, "#/properties/artifact"):
        schema = standard_schema({"$ref": reference}, **{"$defs": {"circle": {"$ref": "#/$defs/circle"}}})
        assert artifact_type_of(standard([]), schema) is None


def test_equal_calls_have_one_fingerprint() -> None:
    """Whatever the order of their arguments, and in every process."""
    digest = hashlib.sha256(b'{"a":1,"b":["\xc3\xa4",null]}').hexdigest()
    assert fingerprint("draw", {"b": ["ä", None], "a": 1}) == f"draw-{digest}"
    assert fingerprint("draw", {"a": 1.0, "b": ["ä", float("nan")]}) == f"draw-{digest}"
    assert fingerprint("draw", {"a": 2**70}) != fingerprint("draw", {"a": 2**70 + 1})
    assert fingerprint("paint", {}) != fingerprint("draw", {})
