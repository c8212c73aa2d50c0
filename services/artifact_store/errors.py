"""What can go wrong inside the store; callers hear of the failures in `services.runtime.artifact_errors`."""


class BytesMissing(Exception):
    """The bucket holds no such object."""


class Moved(Exception):
    """Somebody else has changed the entry: read it again and decide again."""
