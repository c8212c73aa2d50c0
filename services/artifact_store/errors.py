"""Errors inside the store. Callers get the ones of `services.shared.artifacts.errors`."""

from services.shared.artifacts.errors import StorageUnavailable


class BytesMissing(Exception):
    """The object does not exist in the bucket."""


class UnknownVersion(StorageUnavailable):
    """The entry was written by a later version of the store."""

    retryable = False

    def __init__(self) -> None:
        super().__init__("a later version of the store has written the entry of this artifact")
