"""Replies that are handled as they are read keep their order with other messages, and survive a reconnect."""

import nats
from nats.aio.msg import Msg

from runwire.nats_client import NatsClient
from services.messaging import nats_patches
from services.messaging.nats_patches import RequestReply
from tests.support.buses import processed
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

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
