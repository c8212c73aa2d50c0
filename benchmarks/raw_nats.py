"""What NATS alone takes for the same durable steps: plain nats-py, on streams with the same settings.

One tool step needs: two guarded appends to a republished log, a call published to a work queue and delivered, a request
to the tool, its result published to the inbox and delivered, two acknowledgements. A token needs one publish and one
delivery.

The planner's side runs in the measuring process. The tool runner's side and the tool run there too (`together`: no
switching between processes, the least that it can take), or as processes of their own, as in the system (`apart`):
`python -m benchmarks.raw_nats runner`.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import nats
import orjson
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.wire import subjects
from services.messaging.streams import STREAMS, consumer

SIGN = b"raw part ready"
TOGETHER, APART = "together", "apart"
_SUBJECTS = {
    subjects.INBOX: ["inbox.*.*"],
    subjects.CALLS: ["call.*.*"],
    subjects.RUNS: ["emit.*.log", "emit.*.stream"],
}
_PULL_AT_ONCE = 1_000_000
_PULL_S = 3600
_WAIT_S = 30
RECORD, CALL, REQUEST, RESULT, FINISHED = (b"x" * size for size in (450, 500, 420, 25, 230))
"""Bodies of about the sizes that the system sends."""

Handler = Callable[[Msg], Awaitable[None]]


async def connect(url: str) -> Client:
    """A connection that flushes at once."""
    return await nats.connect(url, pending_size=0)


class Parts:
    """One set of streams and what works on them over one connection. `family` keeps two sets apart."""

    def __init__(self, client: Client, family: str) -> None:
        self.client = client
        self.family = family
        self._working: set[asyncio.Task[None]] = set()

    async def provision(self) -> None:
        """Create the streams and consumers, or find them there."""
        for name, filters in _SUBJECTS.items():
            (config,) = [dict(stream) for stream in STREAMS if stream["name"] == name]
            config |= {
                "name": self._stream(name),
                "subjects": [f"{self.family}.{each}" for each in filters],
                "num_replicas": 1,
            }
            config.pop("sources", None)
            if "republish" in config:
                live = f"{self.family}.run.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}"
                config["republish"] = {"src": f"{self.family}.emit.*.*", "dest": live}
            await self._api(f"STREAM.CREATE.{config['name']}", config)
            if name != subjects.RUNS:
                pulled = consumer("raw", config["subjects"][0], ack_wait_s=60)
                create = f"CONSUMER.CREATE.{config['name']}.raw.{config['subjects'][0]}"
                await self._api(create, {"stream_name": config["name"], "config": pulled})

    def _stream(self, like: str) -> str:
        return f"{self.family}_{like}"

    async def _api(self, subject: str, body: dict[str, Any]) -> None:
        answer = orjson.loads(
            (await self.client.request(f"$JS.API.{subject}", orjson.dumps(body), timeout=_WAIT_S)).data
        )
        if "error" in answer:
            raise RuntimeError(f"{subject}: {answer['error']}")

    async def store(self, subject: str, body: bytes, headers: dict[str, str]) -> int:
        """One durable write; its sequence."""
        answer = orjson.loads(
            (await self.client.request(f"{self.family}.{subject}", body, timeout=_WAIT_S, headers=headers)).data
        )
        if "error" in answer:
            raise RuntimeError(f"{subject}: {answer['error']}")
        return int(answer["seq"])

    async def pull(self, stream: str, handler: Handler) -> None:
        """Have every message of a consumer delivered, for as long as the measuring takes."""
        box = self.client.new_inbox()
        await self.client.subscribe(box, cb=handler)
        body = orjson.dumps({"batch": _PULL_AT_ONCE, "expires": _PULL_S * 1_000_000_000})
        await self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream(stream)}.raw", body, reply=box)

    async def barrier(self) -> None:
        """Return once every subscription has taken hold."""
        await self.client.request("$JS.API.INFO", timeout=_WAIT_S)

    async def runner(self) -> None:
        """The tool runner's side of a step."""

        async def work(message: Msg) -> None:
            await self.client.request(f"{self.family}.tool", REQUEST, timeout=_WAIT_S)
            key = message.subject.removeprefix(f"{self.family}.call.")
            await self.store(f"inbox.{key}", FINISHED, {"Nats-Msg-Id": key})
            await self.client.publish(message.reply, b"+ACK")

        async def on_call(message: Msg) -> None:
            self._spawn(work(message))

        await self.pull(subjects.CALLS, on_call)

    async def tool(self) -> None:
        """A tool that answers at once."""

        async def answer(message: Msg) -> None:
            await message.respond(RESULT)

        await self.client.subscribe(f"{self.family}.tool", cb=answer)

    async def speaker(self) -> None:
        """Publishes moments on request: `{subject, tokens, pace_s}`, one stream of tokens per message."""

        async def speak(subject: str, tokens: int, pace_s: float) -> None:
            due = asyncio.get_running_loop().time()
            for _ in range(tokens):
                await self.client.publish(subject, str(time.monotonic_ns()).encode())
                due += pace_s
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

        async def on_request(message: Msg) -> None:
            self._spawn(speak(**orjson.loads(message.data)))

        await self.client.subscribe(f"{self.family}.speak", cb=on_request)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)


class Bare(Parts):
    """The planner's side, and who asks for runs."""

    def __init__(self, client: Client, family: str) -> None:
        super().__init__(client, family)
        self._others: list[Client] = []
        self._waiting: dict[str, asyncio.Future[Msg]] = {}

    async def start(self) -> "Bare":
        """Listen to the inbox; where all is together, start the other side as well."""
        await self.provision()
        await self.pull(subjects.INBOX, self._on_inbox)
        if self.family == TOGETHER:
            url = self.client.connected_url
            for part in ("runner", "tool"):
                other = Parts(await connect(url.geturl() if url else ""), self.family)
                self._others.append(other.client)
                await getattr(other, part)()
                await other.barrier()
        return self

    async def close(self) -> None:
        """End the connections."""
        for client in (*self._others, self.client):
            await client.close()

    async def _on_inbox(self, message: Msg) -> None:
        self._waiting.pop(message.subject.removeprefix(f"{self.family}.inbox.")).set_result(message)

    def _delivery(self, key: str) -> asyncio.Future[Msg]:
        waiting: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[key] = waiting
        return waiting

    async def append(self, run: str, after: int, kind: str = "log") -> int:
        """One guarded append; the new sequence."""
        return await self.store(f"emit.{run}.{kind}", RECORD, {"Nats-Expected-Last-Subject-Sequence": str(after)})

    async def step(self, run: str, number: int, tail: int) -> int:
        """One tool step; the new tail of the log."""
        tail = await self.append(run, tail)
        key = f"{run}.{number}"
        delivered = self._delivery(key)
        await self.store(f"call.{key}", CALL, {"Nats-Msg-Id": key})
        message = await delivered
        tail = await self.append(run, tail)
        await self.client.publish(message.reply, b"+ACK")
        return tail

    async def run(self, steps: int) -> None:
        """A whole run: its request stored and delivered, its steps, a chunk of the answer, its end, the acks."""
        run = os.urandom(16).hex()
        delivered = self._delivery(f"{run}.request")
        await self.store(f"inbox.{run}.request", CALL, {"Nats-Msg-Id": run})
        request = await delivered
        tail = await self.append(run, 0)
        for number in range(steps):
            tail = await self.step(run, number, tail)
        await self.append(run, 0, "stream")
        await self.append(run, tail)
        await self.client.publish(request.reply, b"+ACK")

    async def steps(self, count: int) -> list[float]:
        """Seconds of each of `count` steps of one run."""
        run, tail, took = os.urandom(16).hex(), 0, []
        for number in range(count):
            began = time.monotonic()
            tail = await self.step(run, number, tail)
            took.append(time.monotonic() - began)
        return took

    async def hops(self, streams: int, tokens: int, pace_s: float) -> list[float]:
        """Seconds from each token's moment in the speaker's process to its callback here."""
        took: list[float] = []
        complete = asyncio.Event()

        async def on_token(message: Msg) -> None:
            took.append((time.monotonic_ns() - int(message.data)) / 1e9)
            if len(took) == streams * tokens:
                complete.set()

        box = self.client.new_inbox()
        subscription = await self.client.subscribe(f"{box}.*", cb=on_token)
        await self.barrier()
        for number in range(streams):
            request = {"subject": f"{box}.{number}", "tokens": tokens, "pace_s": pace_s}
            await self.client.publish(f"{self.family}.speak", orjson.dumps(request))
            await asyncio.sleep(pace_s / streams)
        async with asyncio.timeout(_WAIT_S + tokens * pace_s):
            await complete.wait()
        await subscription.unsubscribe()
        return took


async def _serve(part: str, url: str) -> None:
    parts = Parts(await connect(url), APART)
    await parts.provision()
    await getattr(parts, part)()
    await parts.barrier()
    print(SIGN.decode(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], os.environ["RUNWIRE_NATS_URL"]))
