"""`contracts/schemas/` is what other languages read."""

import importlib
import json
import pkgutil
from functools import cache

import jsonschema_rs
import pytest

import contracts
from contracts import __main__ as main
from contracts.wire.base import HttpInput, Message

schemas = cache(main.schemas)


def test_the_folder_says_what_the_models_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of a message: `make schemas`."""
    monkeypatch.setattr(main, "schemas", schemas)
    assert not main.stale()


def test_each_file_is_a_json_schema() -> None:
    """Of draft 2020-12, which is what it claims."""
    for text in schemas().values():
        schema = json.loads(text)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        jsonschema_rs.meta.validate(schema)


def test_every_kind_of_message_has_its_file() -> None:
    """Messages, what people send, and the unions; their bases are no messages.

    A new module is found here before it is forgotten.
    """
    messages = {
        f"{name}.json"
        for found in pkgutil.walk_packages(contracts.__path__, "contracts.")
        if found.name not in {"contracts.wire.base", "contracts.__main__"}
        for name, value in vars(importlib.import_module(found.name)).items()
        if isinstance(value, type) and issubclass(value, Message | HttpInput) and value not in {Message, HttpInput}
    }
    unions = {"RunEvent.json", "InboxMessage.json", "SessionEvent.json", "SessionMessage.json"}
    assert set(schemas()) == messages | unions


def test_what_people_send_forbids_unknown_fields_and_what_services_send_does_not() -> None:
    """A misspelt field is an error at the edge; inside, it may be a newer peer's."""
    assert json.loads(schemas()["RunInput.json"])["additionalProperties"] is False
    assert json.loads(schemas()["RunRequested.json"]).get("additionalProperties", True) is True
