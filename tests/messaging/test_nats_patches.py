"""Headers are parsed and messages sent as by nats-py; replies that are handled as they are read keep their order."""

import secrets
import time

import nats
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from runwire.nats_client import NatsClient
from services.messaging import nats_patches
from services.messaging.nats_patches import RequestReply, use_fast_sender
from tests.support.buses import processed
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

lines = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda name, gap, value: name + gap + value,
        st.sampled_from(
            [b"Nats-Sequence", b" Padded ", b"Two words", b"Tab\tinside", b"Caf\xc3\xa9", b"\x1cOdd", b"a"]
        ),
        st.sampled_from([b":", b": ", b":\t", b"::", b" : "]),
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"", b" 17 ", b"caf\xc3\xa9", b"\xff\xfe", b"\xc2\xa0edge\xc2\xa0", b"a:b"]),
        ),
    ),
)


@given(st.lists(lines, max_size=6))
@example([b"Nats-Stream: RUNS", b"Nats-Sequence: 1", b""])
@example([b"Checked: 1", b"Checked"])
def test_the_same_headers_are_found(block: list[bytes]) -> None:
    """Whatever a peer sends. A header without a name is nobody's, so it may be left out."""
    raw = b"\r\n".join(block) + b"\r\n\r\n"
    assume(raw.count(b"Nats-Subject:") < 2)  # That is a forged message.
    theirs = {name: value for name, value in Client._parse_header_lines(raw).items() if name}
    assert nats_patches.parse(raw) == theirs


def test_more_headers_than_any_program_of_ours_sends_cost_little() -> None:
    """A tool may send eight megabytes of them in one message; only what the server has added is read."""
    for mine in (b"a:b\r\n" * 1_500_000, b"a:" + b"b" * 8_000_000 + b"\r\n"):
        began = time.process_time()
        found = nats_patches.parse(mine + b"Nats-Subject: run.default.x.log\r\nNats-Sequence: 7\r\n\r\n")
        assert time.process_time() - began < 0.1
        assert found == {nats_patches.FORGED: "1", "Nats-Subject": "run.default.x.log", "Nats-Sequence": "7"}


async def test_a_connection_uses_it(nats_server: NatsServer) -> None:
    """Headers come through a real server, on this connection read by us."""
    client = await nats.connect(nats_server.url)
    nats_patches.use_fast_parser(client)
    assert client._parse_header_lines is nats_patches.parse
    subscription = await client.subscribe("test.headers")
    await client.publish("test.headers", b"x", headers={"Runwire-Events": "chunk", "Odd": "a: b"})
    message = await subscription.next_msg(timeout=5)
    assert message.headers == {"Runwire-Events": "chunk", "Odd": "a: b"}
    await client.close()


LARGE_PAYLOAD_BYTES = 1 << 20


async def commands(
    client: Client, monkeypatch: pytest.MonkeyPatch, *, payload: bytes, headers: dict[str, str] | None
) -> bytes:
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


EARLIER = 200


async def test_messages_that_came_before_a_reply_are_handled_before_its_waiter(nats_server: NatsServer) -> None:
    """Followers depend on it: a reply shows that what the server sent before has been received (`Bus.barrier`)."""
    asker, answerer = await nats.connect(nats_server.url), await nats.connect(nats_server.url)
    received: list[bytes] = []

    async def receive(message: Msg) -> None:
        received.append(message.data)

    async def answer(message: Msg) -> None:
        for number in range(EARLIER):
            await answerer.publish("test.inboxes.live", str(number).encode())
        await message.respond(b"")

    await asker.subscribe("test.inboxes.live", cb=receive)
    await processed(asker)
    await answerer.subscribe("test.inboxes.ask", cb=answer)
    await processed(answerer)
    requests = await RequestReply(asker).start()
    for turn in range(1, 6):
        await requests.request("test.inboxes.ask", b"", 10)
        assert len(received) == EARLIER * turn
    await asker.close()
    await answerer.close()


async def test_replies_come_after_a_reconnect(own_nats_server: NatsServer) -> None:
    """The subscription is one of nats-py's, which makes it again."""
    client = NatsClient()
    await client.connect(own_nats_server.url, max_reconnect_attempts=-1, reconnect_time_wait=0)
    received: list[bytes] = []
    await nats_patches.subscribe(client, "test.inboxes.*", lambda message: received.append(message.data))
    await client.publish("test.inboxes.a", b"before")
    await wait_until(lambda: received == [b"before"], what="the message comes")
    own_nats_server.kill()
    await wait_until(lambda: not client.is_connected, what="the connection is lost")
    own_nats_server.start()
    await wait_until(lambda: client.is_connected, what="the connection is back")
    await client.publish("test.inboxes.b", b"after")
    await wait_until(lambda: received == [b"before", b"after"], what="the second message comes")
    await client.close()
