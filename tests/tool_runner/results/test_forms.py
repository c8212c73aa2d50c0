"""What a result says of its artifact: form, skill, type, fingerprint, preview. Form and skill have vectors, too."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from contracts.tools.messages import ArtifactPreview
from runwire import ToolResponse, tool
from services.shared.redaction.json_values import wire_size
from services.tool_runner.results.forms import artifact_type_of, fingerprint, form_of, preview_of, skill_id_of, text_of


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


BLOG = {
    "title": "AI",
    "sections": [{"text": "a", "links": ["x", "y"]}, {"text": "b", "links": []}],
    "sources": ["s"] * 7,
    "by": {"names": ["ada"], "more": {"deep": [1, 2]}},
}


def test_a_small_artifact_is_shown_whole() -> None:
    """With its members and the items of its lists, the outer ones first."""
    preview = preview_of(BLOG, BLOG)
    assert preview.json_type == "dict"
    assert preview.head.startswith('{"title":"AI","sections":[{')
    assert preview.size == len(preview.head.encode())
    assert list(preview.counts.items()) == [
        ("", 4),
        ("sections", 2),
        ("sources", 7),
        ("by.names", 1),
        ("sections[0].links", 2),
        ("sections[1].links", 0),
        ("by.more.deep", 2),
    ]


@pytest.mark.parametrize(
    ("artifact", "expected"),
    [
        ([1, 2, 3], ArtifactPreview(json_type="list", size=7, counts={"": 3}, head="[1,2,3]")),
        ("Grüße", ArtifactPreview(json_type="str", size=7, head="Grüße")),
        (7, ArtifactPreview(json_type="int", size=1, head="7")),
        (True, ArtifactPreview(json_type="bool", size=4, head="true")),
        ({}, ArtifactPreview(json_type="dict", size=2, counts={"": 0}, head="{}")),
        ({"a.b": [1]}, ArtifactPreview(json_type="dict", size=11, counts={"": 1, '["a.b"]': 1}, head='{"a.b":[1]}')),
    ],
)
def test_any_json_has_a_preview(artifact: Any, expected: ArtifactPreview) -> None:
    """Text as it is, anything else as JSON."""
    assert preview_of(artifact, artifact) == expected


@given(
    st.recursive(
        st.text() | st.integers() | st.none() | st.text(alphabet='"\\\n\x00😀').map(lambda text: text * 400),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9).map(lambda text: text * 200), inner),
        max_leaves=12,
    )
)
def test_a_preview_stays_small(artifact: Any) -> None:
    """Some 4 KiB, however the texts and names are written."""
    if artifact is not None:
        assert wire_size(preview_of(artifact, artifact).model_dump()) < 4500
