"""Writes of a service to streams of NATS.

Rule: a durable write returns its sequence, or raises Refused (the server rejected it) or Unsure (it may or may not be
stored). Writes that expect a sequence are in `guarded_write`.
"""

from typing import NamedTuple

import orjson

from services.messaging.errors import GUARD_IN_FLIGHT, Refused, Unavailable, Unsure
from services.messaging.nats_connection import NatsConnection
from services.messaging.streams.storage import Storage
from services.runtime.settings import BusSettings


class Acknowledged(NamedTuple):
    """The server's answer to a write. `is_repeated`: its message id was known, and nothing new was stored."""

    sequence: int
    is_repeated: bool


class Writes(NatsConnection):
    """A connection that writes."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        super().__init__(name, settings)
        self.storage = Storage(self)

    async def publish(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, wait_s: float = 2.0
    ) -> int:
        """Write one message to the stream of `subject`, and return its sequence. Raises as `publish_acknowledged`."""
        return (await self.publish_acknowledged(subject, data, headers, wait_s)).sequence

    async def publish_acknowledged(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, wait_s: float = 2.0
    ) -> Acknowledged:
        """Write one message to the stream of `subject`.

        Raises Refused when the server rejected it; Unsure without an answer, without a stream, or during another
        guarded write.
        """
        try:
            answer = await self.request(subject, data, wait_s, headers)
        except Unavailable as error:
            self.storage.on_silence(subject)
            raise Unsure(str(error)) from error
        body = orjson.loads(answer.data)
        if (error_body := body.get("error")) is not None:
            if error_body.get("err_code") == GUARD_IN_FLIGHT:
                raise Unsure(error_body.get("description", ""))
            refusal = Refused(error_body.get("err_code", 0), error_body.get("description", ""))
            self.storage.on_refusal(subject, refusal)
            raise refusal
        self.storage.on_stored(subject)
        return Acknowledged(int(body["seq"]), bool(body.get("duplicate")))

    async def publish_surely(
        self, subject: str, data: bytes, message_id: str, headers: dict[str, str] | None = None
    ) -> int:
        """Write a message without a guard, repeated under its message id until it is stored. Raises Refused."""
        headers = {**(headers or {}), "Nats-Msg-Id": message_id}
        return await self.until_answered(lambda: self.publish(subject, data, headers))
