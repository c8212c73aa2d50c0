"""Validation errors as sentences."""

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contracts.wire.faults import describe


class Limits(BaseModel):
    """What is nested."""

    max_steps: int = Field(ge=1)


class Request(BaseModel):
    """What is checked."""

    model_config = ConfigDict(extra="forbid")

    name: str
    limits: Limits


def fault_of(text: str) -> ValidationError:
    with pytest.raises(ValidationError) as raised:
        Request.model_validate_json(text)
    return raised.value


def test_each_fault_names_its_field_and_what_it_should_be() -> None:
    """And never the value."""
    said = describe(fault_of('{"name": 123456789, "limits": {"max_steps": -987}, "nmae": "x"}'))
    assert said == (
        "name: Input should be a valid string; limits.max_steps: Input should be greater than or equal to 1;"
        " nmae: there is no such field"
    )


def test_a_fault_of_the_whole_has_no_name() -> None:
    """As of a text that is not JSON."""
    said = describe(fault_of('{"secret'))
    assert said.startswith("Invalid JSON")
    assert "secret" not in said
