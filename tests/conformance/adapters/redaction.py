"""What the model sees of a tool's result."""

from typing import Any

from services.shared.redaction.separation import separate
from tests.support.vector_tokens import assert_matches, decoded


def check(vector: dict[str, Any]) -> None:
    given = vector["input"]
    shown = separate(
        decoded(given["observation"]), given.get("schema"), streamed=given.get("emitted_streams")
    ).observation
    assert_matches(shown, decoded(vector["expected"]["redacted"]), "what the model sees")
