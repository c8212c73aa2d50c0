"""What every message has in common.

Rule 1: messages are frozen; a changed message is a new message.
Rule 2: unknown fields are ignored, since a newer version may send them; a record of an unknown version is refused
(`records.Record`).
Rule 3: this package imports pydantic and nothing else, so that other projects can vendor it.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

M = TypeVar("M", bound=BaseModel)


class Message(BaseModel):
    """Base of all messages between services."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
        defer_build=True,  # No process uses all messages: each is built at its first use.
    )


def parsed(model: type[M], data: bytes | str) -> M | None:
    """Return what a text in JSON says; None: it is no such message."""
    try:
        return model.model_validate_json(data)
    except (ValidationError, RecursionError):
        return None


def is_absent(value: Any) -> bool:
    """Whether a field is left out when its message is written: null, zero or empty. For `exclude_if`."""
    return not value


def of_no_type_in(events: Iterable[type[BaseModel]]) -> AfterValidator:
    """Return what refuses an unknown event whose type is that of a known one: its other fields are wrong."""
    known = frozenset(str(event.model_fields["type"].default) for event in events)

    def check(event: Any) -> Any:
        if event.type in known:
            raise ValueError("an event of this type has other fields")
        return event

    return AfterValidator(check)


class HttpInput(BaseModel):
    """Base of the bodies that clients send to the gateway. A misspelt field is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
