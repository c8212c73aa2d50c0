"""One line for each error and warning."""

import pytest

from contracts.runs.decisions import (
    FieldNotFound,
    ForwardReference,
    IndexOutOfBounds,
    InvalidArgument,
    NoOutputSchema,
    OverLimit,
    PlainError,
    PlanCall,
    PlanError,
    PlanErrorDetail,
    TypeMismatch,
)
from runwire.plans import error_line
from runwire.plans.texts import LIMIT_TEXTS, PLAIN_TEXTS

CALLS = [PlanCall(tool_name="research"), PlanCall(tool_name="publish")]


def not_found(field: str, *names: str) -> FieldNotFound:
    """A field that `research` does not declare."""
    return FieldNotFound(tool_name="research", tool="research", field=field, available_fields=list(names))


def mismatch(source: list[str], target: list[str]) -> TypeMismatch:
    """A field of `research` of another type."""
    return TypeMismatch(tool_name="research", field="a", source_types=source, target_types=target)


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        (not_found("artifactId", "id", "art"), 'research has no output field "artifactId"; it has id, art'),
        (not_found("art.x", "title"), 'research has no output field "art.x"; there it has title'),
        (not_found("x"), 'research has no output field "x"; it declares none'),
        (not_found("x.y"), 'research has no output field "x.y"; none is declared there'),
        (InvalidArgument(reason="3 is not of type"), "3 is not of type; correct the argument"),
        (
            mismatch(["integer", "null"], ["string"]),
            '"a" of research is integer or null, and the argument takes string; refer to a field of that type',
        ),
        (mismatch(["array"], ["array"]), 'the items of "a" of research are of other types than the argument takes'),
        (
            mismatch([], ["string"]),
            '"a" of research is nothing, and the argument takes string; refer to a field of that type',
        ),
        (
            IndexOutOfBounds(referenced_index=7, max_valid_index=0),
            "the plan has no call 7; use a number from 0 to 0",
        ),
        (
            IndexOutOfBounds(referenced_index=7, max_valid_index=None),
            "the plan has no call 7; no call comes before this one",
        ),
        (ForwardReference(referenced_index=2), "call 2 comes later; only the output of an earlier call can be used"),
        (NoOutputSchema(tool_name="research"), "research declares no output, so no template can refer to it"),
    ],
)
def test_errors_of_templates(detail: PlanErrorDetail, text: str) -> None:
    """Call, tool, argument, template, and what to do."""
    error = PlanError(tool_index=1, argument="refs[1].url", template="$0.output.a", error=detail)
    assert error_line(error, CALLS) == f"Call 1 (publish), argument refs[1].url: template $0.output.a - {text}"


def test_every_code_has_a_text() -> None:
    """None is left without what to do."""
    for code in PLAIN_TEXTS:
        assert error_line(PlanError(tool_index=1, error=PlainError.model_validate({"type": code})), CALLS)
    assert set(PLAIN_TEXTS) == set(PlainError.model_json_schema()["properties"]["type"]["enum"])
    assert set(LIMIT_TEXTS) == set(OverLimit.model_json_schema()["properties"]["type"]["enum"])
