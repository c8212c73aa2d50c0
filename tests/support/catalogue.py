"""Where the catalogue keeps what it knows, for tests that write and read it directly."""

from contracts.wire import keys, subjects

STREAM = subjects.bucket_stream(keys.CATALOGUE_BUCKET)


def key_subject(key: str) -> str:
    """The subject of a key."""
    return subjects.bucket_value(keys.CATALOGUE_BUCKET, key)
