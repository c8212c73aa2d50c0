"""What can go wrong inside the store; callers hear of the failures in `services.shared.artifacts.errors`."""

from services.shared.artifacts.errors import StorageUnavailable


class BytesMissing(Exception):
    """The bucket holds no such object."""


class EntryChanged(Exception):
    """Somebody else has changed the entry: read it again and decide again."""


class UnknownVersion(StorageUnavailable):
    """A later version of the store has written the record."""

    retryable = False

    def __init__(self) -> None:
        super().__init__("a later version of the store has written the record of these bytes")
