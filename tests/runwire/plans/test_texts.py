"""One line for each error and warning."""

import pytest

from contracts.runs.plans import (
    FieldNotFound,
    ForwardReference,
    IndexOutOfBounds,
    NoOutputSchema,
    OverLimit,
    PlainError,
    PlanCall,
    PlanError,
    PlanErrorDetail,
    PlanWarning,
    TypeMismatch,
    UnknownTool,
)
from runwire.plans import error_line, warning_line
from runwire.plans.texts import _LIMITS, _PLAIN

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
        (not_found("x"), 'research has no output field "x"; there are no fields there'),
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


def test_errors_of_calls_and_of_the_plan() -> None:
    """Without what they have not."""
    unknown = UnknownTool(tool_name="ghost", available_tools=["a", "b"])
    assert error_line(PlanError(tool_index=0, error=unknown), CALLS) == (
        "Call 0 (research): there is no tool ghost; the tools are a, b"
    )
    many = OverLimit(type="too_many_calls", limit=64, found=65)
    assert error_line(PlanError(tool_index=None, error=many), []) == (
        "the plan has 65 calls, and at most 64 are allowed; plan fewer"
    )
    deep = OverLimit(type="too_deep", limit=32)
    assert error_line(PlanError(tool_index=9, error=deep), CALLS) == (
        "Call 9: it has more than 32 levels, and at most 32 are allowed; use fewer"
    )


def test_every_code_has_a_text() -> None:
    """None is left without what to do."""
    for code in _PLAIN:
        assert error_line(PlanError(tool_index=1, error=PlainError.model_validate({"type": code})), CALLS)
    assert set(_PLAIN) == set(PlainError.model_json_schema()["properties"]["type"]["enum"])
    assert set(_LIMITS) == set(OverLimit.model_json_schema()["properties"]["type"]["enum"])


def test_warnings() -> None:
    """The same form."""
    assert warning_line(PlanWarning(tool_index=1, argument="x", warning="nullable_source"), CALLS) == (
        "Call 1 (publish), argument x: the value of the template may be null, which the tool does not take"
    )
    embedded = PlanWarning(tool_index=1, argument="x", warning="embedded_template_not_resolved")
    assert "whole string" in warning_line(embedded, CALLS)


def test_hostile_names_stay_in_one_line() -> None:
    """Control characters are left out, long names cut, long lists end with the number of the rest."""
    evil = "a\n\x1b[31m\u202e\u2028" + "x" * 5_000
    calls = [PlanCall(tool_name=evil)]
    details: list[PlanErrorDetail] = [
        FieldNotFound(tool_name=evil, tool=evil, field=evil, available_fields=[evil] * 100),
        UnknownTool(tool_name=evil, available_tools=[evil] * 100),
        TypeMismatch(tool_name=evil, field=evil, source_types=["string"], target_types=["null"]),
        NoOutputSchema(tool_name=evil),
    ]
    for detail in details:
        line = error_line(PlanError(tool_index=0, argument=evil, template=evil, error=detail), calls)
        assert line.isprintable()
        assert len(line) < 2_600
        assert ("and 80 more" in line) == isinstance(detail, FieldNotFound | UnknownTool)
