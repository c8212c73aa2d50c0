"""What the model reads of an artifact: bounded, whatever the artifact is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.tools.messages import ArtifactPreview
from services.shared.redaction.json_values import wire_size
from services.tool_runner.results.forms import preview_of

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
