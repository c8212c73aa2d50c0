"""The bucket behaves alike on every S3 server: the conformance of what the store relies on, and of nothing else."""

import secrets
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from services.artifact_store.bucket import Bucket
from services.shared.artifacts.errors import ArtifactInvalid, StorageUnavailable
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stores import settings_for

MIB = 1 << 20


def new_key() -> str:
    name = secrets.token_hex(32)
    return f"tenant_1/{name[:2]}/{name}"


async def test_a_stream_that_breaks_leaves_nothing(bucket: Bucket) -> None:
    """An error of the sender ends the put, and no object appears; nor does it damage one that is there."""
    await bucket.ensure()
    key, there = new_key(), new_key()
    await bucket.write(there, b"y" * 100)

    def breaking() -> Iterator[bytes]:
        yield b"x" * MIB
        raise ArtifactInvalid("as a test wants it")

    for target in (key, there):
        with pytest.raises(ArtifactInvalid):
            await bucket.write_stream(target, breaking(), 2 * MIB)
    assert await bucket.size(key) is None
    assert await bucket.read(there, 0, 100, 100) == b"y" * 100


async def test_wrong_keys_and_a_missing_server_are_one_kind_of_failure(s3: S3Server, server: NatsServer) -> None:
    """And the failure does not repeat what the server said."""
    right = settings_for(s3, server.url)
    for change in ({"s3_secret_key": SecretStr("wrong-secret")}, {"s3_endpoint": "127.0.0.1:1"}):
        bucket = Bucket(right.model_copy(update=change))
        try:
            for call in (
                bucket.ensure(),
                bucket.size(new_key()),
                bucket.write(new_key(), b"x"),
                bucket.read(new_key(), 0, 1, 1),
            ):
                with pytest.raises(StorageUnavailable) as failure:
                    await call
                assert failure.value.retryable
        finally:
            bucket.close()
