"""What can go wrong inside the store; callers hear of the failures in `services.runtime.artifact_errors`."""

import traceback

from services.runtime.artifact_errors import StorageUnavailable

_PLACES = 5


class BytesMissing(Exception):
    """The bucket holds no such object."""


class Moved(Exception):
    """Somebody else has changed the entry: read it again and decide again."""


class NotUnderstood(StorageUnavailable):
    """A later version of the store has written the record."""

    retryable = False

    def __init__(self) -> None:
        super().__init__("a later version of the store has written the record of these bytes")


def places(error: BaseException) -> list[str]:
    """Where an error comes from, as `file:line`: its text, or a traceback with values, may show bytes."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames][-_PLACES:]
