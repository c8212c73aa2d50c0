"""(f) Artifacts: put and get through the store, beside the raw S3 client on the same server.

Run: python -m benchmarks.artifacts

The raw client is minio-py as anybody would call it, in a thread of the measuring process. The bytes of a put also cross
NATS, are hashed on both sides, and come with three acknowledged, synced entries; those of a get cross NATS too. So
there is a second thing to compare with: the raw parts one after the other, which are the raw client and a bare hop, the
same bytes in requests of a megabyte between two processes, four under way. Ratios are speeds divided round by round.
`--server weed`: on SeaweedFS; `--folder`: where the servers keep their files.
"""

import argparse
import asyncio
import io
import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import nats
import uvloop
from minio import Minio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from benchmarks.ratio_tables import Table, alternate, ratios, spread
from services.messaging.connection import Bus
from services.messaging.streams import provision
from services.runtime.settings import BusSettings
from services.shared.artifacts.client import ArtifactClient
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import Stack

MB = 1 << 20
TENANT, BUCKET = "default", "test-bucket"
CASES = ((MB, 1, 40), (MB, 8, 80), (50 * MB, 1, 2), (50 * MB, 2, 4))
"""Bytes of one artifact, how many at a time, how many in a round."""
_numbers = itertools.count(1)


def fresh(body: bytes) -> bytes:
    """Bytes that nobody has stored: the same but for their beginning."""
    return next(_numbers).to_bytes(8, "big") + body[8:]


class Raw:
    """minio-py, in a thread per call."""

    def __init__(self, client: Minio) -> None:
        self._client = client

    async def put(self, body: bytes) -> str:
        """Write an object and return its key."""
        key = f"raw/{next(_numbers)}"
        await asyncio.to_thread(self._client.put_object, BUCKET, key, io.BytesIO(body), len(body))
        return key

    async def get(self, key: str) -> int:
        """Read an object in pieces of a megabyte and return how many bytes it has."""
        return await asyncio.to_thread(self._get, key)

    def _get(self, key: str) -> int:
        response = self._client.get_object(BUCKET, key)
        try:
            return sum(len(piece) for piece in response.stream(MB))
        finally:
            response.close()
            response.release_conn()


class Through:
    """The store, in a process of its own, over NATS."""

    def __init__(self, client: ArtifactClient) -> None:
        self._client = client

    async def put(self, body: bytes) -> str:
        """Put an artifact and return its id."""
        return (await self._client.put(TENANT, body)).artifact_id

    async def get(self, key: str) -> int:
        """Read an artifact in pieces and return how many bytes it has."""
        download = await self._client.get(TENANT, key)
        return sum([len(piece) async for piece in download.chunks()])


class Hop:
    """The same bytes across NATS and nothing else; the other end is `far_end`, in a process of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def put(self, body: bytes) -> str:
        """Send them in megabytes, each acknowledged."""
        pieces = iter([body[start : start + MB] for start in range(0, len(body), MB)])

        async def send() -> None:
            for piece in pieces:
                await self._client.request("bench.up", piece, timeout=60)

        await asyncio.gather(*(send() for _ in range(4)))
        return str(len(body))

    async def get(self, key: str) -> int:
        """Ask for so many bytes, in megabytes."""
        starts = iter(range(0, int(key), MB))
        count = 0

        async def receive() -> None:
            nonlocal count
            for start in starts:
                answer = await self._client.request("bench.down", str(min(MB, int(key) - start)).encode(), timeout=60)
                count += len(answer.data)

        await asyncio.gather(*(receive() for _ in range(4)))
        return count


def far_end(url: str) -> None:
    """Take and give bytes until killed."""

    async def serve() -> None:
        client = await nats.connect(url)
        body = os.urandom(MB)

        async def up(message: Msg) -> None:
            await message.respond(b"")

        async def down(message: Msg) -> None:
            await message.respond(body[: int(message.data)])

        await client.subscribe("bench.up", cb=up)
        await client.subscribe("bench.down", cb=down)
        await asyncio.Event().wait()

    uvloop.run(serve())


@asynccontextmanager
async def hopping(url: str) -> AsyncIterator[Hop]:
    """Both ends of a hop."""
    process = multiprocessing.get_context("spawn").Process(target=far_end, args=(url,), daemon=True)
    process.start()
    client = await nats.connect(url)
    try:
        while True:
            try:
                await client.request("bench.up", b"", timeout=10)
                break
            except NoRespondersError:
                await asyncio.sleep(0.1)
        yield Hop(client)
    finally:
        await client.close()
        process.kill()
        process.join()


@asynccontextmanager
async def everything(kind: str, folder: Path) -> AsyncIterator[tuple[Raw, Hop, Through]]:
    """A NATS server, an S3 server and a store, each a process."""
    server = NatsServer(folder / "nats", sync="always")
    server.start()
    bus = Bus("bench", BusSettings(nats_url=server.url))
    try:
        with S3Server(kind, folder / "s3") as s3:
            stack = Stack(server.url, folder / "logs", env=s3.settings, planners=0, tool_runners=0, gateways=0)
            stack.add("artifact_store-1", "-m", "services.artifact_store")
            await bus.connect()
            await provision(bus)
            with stack:
                async with hopping(server.url) as hop:
                    yield Raw(s3.client), hop, Through(ArtifactClient(bus))
            await bus.leave()
    finally:
        server.kill()


async def megabytes_per_second(call: Callable[[], Awaitable[object]], size: int, at_once: int, count: int) -> float:
    """How fast `count` calls move `size` bytes each, so many at a time."""
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await call()

    begin = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return count * size / MB / (time.perf_counter() - begin)


async def measure(kind: str, folder: Path, rounds: int) -> Table:
    """All cases, alternating between the ways within each round."""
    table = Table(
        f"Artifacts on {kind}, MB/s",
        ("what", "raw S3 client", "bare hop", "through the store", "of raw S3", "of S3 and hop"),
        "Median over the rounds, and their range.",
    )
    async with everything(kind, folder) as ways:
        for size, at_once, count in CASES:
            body = os.urandom(size)
            kept = [await way.put(fresh(body)) for way in ways]
            for verb in ("put", "get"):
                moving = partial(moved, verb, body, at_once, count)
                found = await alternate(
                    rounds, {str(place): partial(moving, way, kept[place]) for place, way in enumerate(ways)}
                )
                raw, hop, store = (found[str(place)] for place in range(3))
                parts = [1 / (1 / a + 1 / b) for a, b in zip(raw, hop, strict=True)]
                what = f"{verb} {size // MB} MB, {at_once} at a time"
                table.add(
                    what,
                    spread(raw, 0),
                    spread(hop, 0),
                    spread(store, 0),
                    spread(ratios(store, raw)),
                    spread(ratios(store, parts)),
                )
    return table


async def moved(verb: str, body: bytes, at_once: int, count: int, way: Raw | Hop | Through, key: str) -> float:
    """Move `body` so many times and return the MB/s."""
    if verb == "put":
        return await megabytes_per_second(lambda: way.put(fresh(body)), len(body), at_once, count)
    return await megabytes_per_second(lambda: way.get(key), len(body), at_once, count)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Put and get of artifacts beside the raw S3 client")
    parser.add_argument("--server", choices=("rclone", "weed", "minio"), default="rclone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="for the servers' files; default: the temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(uvloop.run(measure(options.server, Path(folder), options.rounds)).text())


if __name__ == "__main__":
    main()
