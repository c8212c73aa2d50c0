"""Call a tool as tool_runner does: one request, any number of replies, the last a result or a failure."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from contracts.tools.messages import PARTS_HEADER, REPLY_HEADER, SPEC_METADATA, CallQuestion, ToolCall, ToolSpec
from contracts.wire import subjects
from contracts.wire.names import new_id
from tests.support.waiting import wait_until

LONG = 30.0
_ENDS = {"result", "failure", "declined"}


@dataclass
class Asked:
    """What one inbox has received."""

    kinds: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)

    async def on_reply(self, message: Msg) -> None:
        headers = message.headers or {}
        kind = headers.get(REPLY_HEADER, "result")
        data = message.data
        if kind == "part":
            self.parts.append(data)
            return
        if PARTS_HEADER in headers:
            assert int(headers[PARTS_HEADER]) == len(self.parts)
            data = b"".join(self.parts)
        self.kinds.append(kind)
        self.bodies.append(json.loads(data))

    def of(self, kind: str) -> list[Any]:
        return [body for found, body in zip(self.kinds, self.bodies, strict=True) if found == kind]

    @property
    def ended(self) -> bool:
        """Whether there is a result or failure."""
        return bool(self.kinds) and self.kinds[-1] in _ENDS

    async def end(self, timeout: float = LONG) -> tuple[str, Any]:
        await wait_until(lambda: self.ended, timeout=timeout, what="the call ended")
        assert sum(kind in _ENDS for kind in self.kinds) == 1
        return self.kinds[-1], self.bodies[-1]

    async def first(self, kind: str, timeout: float = LONG) -> Any:
        return (await wait_until(lambda: self.of(kind), timeout=timeout, what=f"a {kind} came"))[0]


def call_of(tool: str, args: dict[str, Any], **fields: Any) -> ToolCall:
    """A call of a run of its own, due in a minute."""
    run = new_id()
    wanted = {"call_id": "1-0", "idempotency_key": f"{run}.1-0", "deadline_at": int(time.time() * 1000) + 60_000}
    return ToolCall(run_id=run, tool=tool, args=args, **{**wanted, **fields})


async def ask(client: Client, call: ToolCall) -> Asked:
    return await _send(client, subjects.tool(call.tool), call.model_dump_json().encode())


async def ask_for(client: Client, tool: str, key: str, asked: Asked | None = None) -> Asked:
    return await _send(
        client, subjects.tool_status(tool), CallQuestion(idempotency_key=key).model_dump_json().encode(), asked
    )


async def cancel(client: Client, call: ToolCall) -> None:
    await client.publish(
        subjects.tool_cancel(call.tool), CallQuestion(idempotency_key=call.idempotency_key).model_dump_json().encode()
    )


async def send_raw(client: Client, tool: str, data: bytes) -> Asked:
    """Send what may be no call at all."""
    return await _send(client, subjects.tool(tool), data)


async def _send(client: Client, subject: str, data: bytes, asked: Asked | None = None) -> Asked:
    asked = asked or Asked()
    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=asked.on_reply)
    await client.publish(subject, data, reply=inbox)
    return asked


async def discover(client: Client, tool: str) -> ToolSpec:
    """Wait until the tool is there, and return what it says about itself."""

    async def endpoint() -> dict[str, Any] | None:
        try:
            info = await client.request(f"$SRV.INFO.{tool}", b"", timeout=0.5)
        except (NatsError, TimeoutError):  # Not there yet.
            return None
        # A micro service is there a moment before its endpoint.
        return next(
            (found for found in json.loads(info.data)["endpoints"] if SPEC_METADATA in (found.get("metadata") or {})),
            None,
        )

    found = await wait_until(endpoint, timeout=LONG, what=f"{tool} was discovered")
    assert found is not None
    assert found["subject"] == subjects.tool(tool)
    assert found["queue_group"] == tool
    return ToolSpec.model_validate_json(found["metadata"][SPEC_METADATA])
