"""The typed options of `Client.start` are those that the gateway accepts."""

from typing import get_type_hints

from contracts.runs.pages import Page
from contracts.runs.requests import ConversationMessage, LimitsInput, MemoryInput, RunInput
from runwire.client.options import LimitOptions, MemoryOptions, MessageOption, PageOption, RunOptions


def test_the_options_are_the_fields_of_the_request() -> None:
    """`query` and `images` are arguments of their own."""
    assert get_type_hints(RunOptions).keys() == RunInput.model_fields.keys() - {"query", "images"}
    for options, fields in (
        (LimitOptions, LimitsInput),
        (MemoryOptions, MemoryInput),
        (MessageOption, ConversationMessage),
        (PageOption, Page),
    ):
        assert get_type_hints(options).keys() == fields.model_fields.keys()


def test_the_options_have_the_types_of_the_request() -> None:
    """But for those that are typed dictionaries here, and `tools`, whose names have a pattern there."""
    for name, hint in get_type_hints(RunOptions).items():
        if name not in {"limits", "memory", "messages", "page", "tools"}:
            assert hint == RunInput.model_fields[name].annotation, name
