"""Artifacts under their dotted paths, and back in their places."""

from typing import Any

import pytest

from services.shared.redaction.separation import dotted, restore
from services.shared.redaction.stored_values import as_reference

REF = {
    "artifact_id": "0" * 32,
    "mime_type": "application/json",
    "size": 43_000,
    "sha256": "a" * 64,
    "json_type": "dict",
}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("chart",), "chart"),
        (("items", 0, "blob"), "items[0].blob"),
        ((0, 1), "[0][1]"),
        (("files", "report.pdf", "blob"), 'files["report.pdf"].blob'),
        (("a.b",), '["a.b"]'),
        (("a b",), "a b"),
        (("",), '[""]'),
        (("$",), '["$"]'),
        (("it[0]", "x"), '["it[0]"].x'),
        ((), "$"),
    ],
)
def test_a_path_has_one_name(path: tuple[str | int, ...], name: str) -> None:
    """Quoted where it would be ambiguous; no two paths share a name."""
    assert dotted(path) == name


def test_artifacts_return_to_their_places_by_value_or_by_reference() -> None:
    """A placeholder that nobody knows stays."""
    observation = {
        "n": 1,
        "chart": "<artifact:dict size=42KB>",
        "rows": [{"b": "<artifact:str size=3B>"}],
        "gone": "<artifact:int>",
    }
    restored = restore(observation, {"chart": REF, "rows[0].b": "abc"})
    assert restored == {"n": 1, "chart": REF, "rows": [{"b": "abc"}], "gone": "<artifact:int>"}
    ref = as_reference(REF)
    assert ref is not None
    assert restore("<artifact:dict size=42KB>", {"$": ref}) == REF


@pytest.mark.parametrize(
    "change", [{"artifact_id": "x"}, {"sha256": "A" * 64}, {"size": -1}, {"size": "many"}, {"json_type": "tree"}]
)
def test_what_does_not_have_the_shape_is_no_reference(change: dict[str, Any]) -> None:
    """Every field is checked, and none may be missing."""
    assert as_reference(REF) is not None
    assert as_reference(REF | change) is None
    assert (
        as_reference(
            {key: value for key, value in REF.items() if key not in change or key == "json_type"} | {"json_type": 1}
        )
        is None
    )
