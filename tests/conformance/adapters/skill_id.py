"""The form of a tool's result, and the id of the skill that it names."""

from typing import Any

from services.tool_runner.results.forms import form_of, skill_id_of
from tests.conformance.compare import assert_same


def check(vector: dict[str, Any]) -> None:
    value = vector["input"].get("structured_content")
    found = {"skill_id": skill_id_of(value), "format": form_of(value).name}
    assert_same({name: found[name] for name in vector["expected"]}, vector["expected"], "what the result says")
