"""Validation errors as sentences."""

import pytest
from pydantic import ValidationError

from contracts.tools import ArtifactPiece
from services.shared.validation_errors import first_fault


@pytest.mark.parametrize(
    ("text", "place"),
    [('{"stream_id": "s", "seq": -1, "chunk": "secret"}', "seq: "), ('{"secret', "Invalid JSON")],
)
def test_the_first_fault_is_told_without_its_value(text: str, place: str) -> None:
    """With its place, if it has one."""
    with pytest.raises(ValidationError) as raised:
        ArtifactPiece.model_validate_json(text)
    assert first_fault(raised.value).startswith(place)
    assert "secret" not in first_fault(raised.value)
