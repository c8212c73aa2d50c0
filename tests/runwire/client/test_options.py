"""The typed options of `Client.start` are those that the gateway accepts."""

from typing import get_type_hints

from contracts.runs import LimitsInput, RunInput
from runwire.client.options import LimitOptions, RunOptions


def test_the_options_are_the_fields_of_the_request() -> None:
    """`query` and `images` are arguments of their own."""
    assert get_type_hints(RunOptions).keys() == RunInput.model_fields.keys() - {"query", "images"}
    assert get_type_hints(LimitOptions).keys() == LimitsInput.model_fields.keys()


def test_the_options_have_the_types_of_the_request() -> None:
    """But for `limits`, a typed dictionary here, and `tools`, whose names have a pattern there."""
    for name, hint in get_type_hints(RunOptions).items():
        if name not in {"limits", "tools"}:
            assert hint == RunInput.model_fields[name].annotation, name
