"""A large payload that is sent without a copy reaches the server as nats-py would send it."""

import secrets

import nats
import pytest
from nats.aio.client import Client

from services.messaging.nats_patches.headers import use_fast_sender
from tests.support.nats_server import NatsServer

LARGE_PAYLOAD_BYTES = 1 << 20


async def commands(
    client: Client, monkeypatch: pytest.MonkeyPatch, *, payload: bytes, headers: dict[str, str] | None
) -> bytes:
    """What the client would write for one message."""

    async def keep(*_: object) -> None:
        """Leave it where it waits."""

    with monkeypatch.context() as patch:
        patch.setattr(client, "_flush_pending", keep)
        await client.publish("test.payloads", payload, reply="test.reply", headers=headers)
        pending, client._pending, client._pending_data_size = client._pending, [], 0
    return b"".join(pending)


@pytest.mark.parametrize(
    "headers", [None, {}, {"Runwire-Events": "chunk", " Odd ": " a:\r\nb ", "": "nameless", "Umlaut": "ä"}]
)
@pytest.mark.parametrize("size", [0, 100, LARGE_PAYLOAD_BYTES])
async def test_the_same_bytes_are_written(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, size: int, headers: dict[str, str] | None
) -> None:
    """Whatever the headers."""
    theirs, ours = await nats.connect(nats_server.url), await nats.connect(nats_server.url)
    use_fast_sender(ours)
    payload = secrets.token_bytes(size)
    written = [await commands(client, monkeypatch, payload=payload, headers=headers) for client in (theirs, ours)]
    assert written[0] == written[1]
    assert theirs.stats["out_bytes"] == ours.stats["out_bytes"]
    await theirs.close()
    await ours.close()
