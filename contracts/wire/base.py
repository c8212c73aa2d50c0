"""What every message has in common, and the sizes of messages and of the values inside them, in bytes.

Rule 1: messages are frozen; a changed message is a new message.
Rule 2: unknown fields are ignored, since a newer version may send them; a record of an unknown version is refused
(`records.Record`).
Rule 3: this package imports pydantic and nothing else, so that other projects can vendor it.
Rule 4: sender and receiver use the same constant, so an accepted message can be stored.
Rule 5: a value above its inline size is sent as an `ArtifactRef` (docs/artifacts.md). Sizes of values are those of
their compact JSON.
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

    @classmethod
    def model_rebuild(cls, *, _parent_namespace_depth: int = 0, **options: Any) -> bool | None:
        """Build it with the names of its module alone: `_parent_namespace_depth`, which pydantic gives, is ignored.

        Python 3.13.0 crashes where pydantic reads the caller's names and the caller is a comprehension.
        """
        return super().model_rebuild(_parent_namespace_depth=0, **options)


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


KIB, MIB = 1 << 10, 1 << 20

MAX_MESSAGE_BYTES = MIB
"""Largest message in a stream, as the streams are configured."""
MAX_RECORD_BYTES = MAX_MESSAGE_BYTES - 8 * KIB
"""Largest record on a run's log; the rest of the message is for headers."""
MAX_REQUEST_BYTES = MAX_MESSAGE_BYTES - 128 * KIB
"""Largest request for a run. The record that opens the run contains it, beside the digests of all tools."""
MAX_OUTCOME_BYTES = 512 * KIB
"""Largest outcome of a call: a record has room for it and for the events beside it."""
MAX_READ_BYTES = MIB
"""Largest outcome of a read (`ReadRequested`), which is stored nowhere."""
MAX_PAGE_BYTES = 64 * KIB
"""Largest `page` of a request, as its JSON."""
MAX_ARGUMENT_BYTES = 512 * KIB
"""Largest arguments of a call in the log. Only the results of very many branches exceed it, since a large result is a
reference."""
MAX_SPEC_BYTES = 256 * KIB
"""Largest announced specification of a tool, counted in characters."""

MAX_INLINE_BYTES = 32 * KIB
"""Largest inline value in a message or in the log, and largest observation in the model's context."""
MAX_EVENT_INLINE_BYTES = 128 * KIB
"""Limit of all inline values of one event together."""
MAX_HTTP_INLINE_BYTES = MIB
"""Largest JSON value that the gateway returns in place of its reference."""

ARTIFACT_WARNING_BYTES = MIB
"""A larger artifact is stored, and the run's payload carries a warning."""
MAX_ARTIFACT_BYTES = 50 * MIB
"""A larger artifact fails its call, with a message to the model; the run goes on."""

MAX_PUT_BYTES = 2 * MIB
"""Largest artifact that is sent in the request itself; a larger one is uploaded in chunks."""
CHUNK_BYTES = 2 * MIB
"""Size of every chunk of an upload but the last, and of the longest range of one get. docs/decisions/0007 says why."""

PART_BYTES = MIB
"""Size of each part of a tool's result. A smaller result is sent in one message."""
MAX_PIECE_BYTES = 128 * KIB
"""Largest piece of an artifact stream, as JSON."""
MAX_PIECES = 10_000
"""Most pieces of one artifact stream. The next piece ends the stream."""
