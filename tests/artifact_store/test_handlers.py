"""Requests that are refused before a handler sees them."""

import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from contracts.artifacts import HeadArtifact
from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from tests.support.stores import Store

STORED = subjects.bucket_value(keys.ARTIFACTS_BUCKET, "x")


@pytest.mark.parametrize("reply", [STORED, "_INBOX", "_INBOX_gateway.1", "emit.default.x.log"])
async def test_the_store_replies_to_inboxes_only(embedded: Store, reply: str) -> None:
    """It may write its bucket, so a caller could have it write there: not even an empty message is sent."""
    received: list[Msg] = []

    async def receive(message: Msg) -> None:
        received.append(message)

    await embedded.bus.subscribe(reply, receive)
    head = HeadArtifact(artifact_id=new_id(), tenant=embedded.tenant).model_dump_json().encode()
    with capture_logs() as logged:
        for body in (head, b"not JSON"):
            await embedded.bus.send(subjects.artifact_head(), body, reply=reply)
        ref = await embedded.client.put(embedded.tenant, b"bytes")
        await embedded.client.head(embedded.tenant, ref.artifact_id)
    await embedded.bus.barrier()

    assert received == []
    assert await embedded.bus.last(subjects.bucket_stream(keys.ARTIFACTS_BUCKET), STORED) is None
    assert "request_failed" not in str(logged)


async def test_a_request_without_a_reply_subject_is_not_carried_out(embedded: Store) -> None:
    """Nobody would know how it ended."""
    ref = await embedded.client.put(embedded.tenant, b"bytes")
    request = HeadArtifact(artifact_id=ref.artifact_id, tenant=embedded.tenant).model_dump_json().encode()
    await embedded.bus.send(subjects.artifact_delete(), request)
    await embedded.client.put(embedded.tenant, b"later")
    assert (await embedded.client.head(embedded.tenant, ref.artifact_id)).ref == ref
