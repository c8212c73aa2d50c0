"""What happens to artifacts when something dies: the store as a process of its own, real servers, real signals."""

import asyncio
import contextlib
import hashlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from services.messaging.connection import Bus
from services.messaging.streams.provision import provision
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import StorageUnavailable
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server, kinds
from tests.support.stack import Stack, resident
from tests.support.waiting import wait_until

MIB = 1 << 20
NAME = "artifact_store-1"


class Deployment:
    """A NATS server, an S3 server, and a store as a process."""

    def __init__(self, nats_server: NatsServer, s3: S3Server, stack: Stack, bus: Bus, client: ArtifactClient) -> None:
        self.nats = nats_server
        self.bus = bus
        self.s3 = s3
        self.stack = stack
        self.client = client
        self.tenant = f"t{secrets.token_hex(5)}"

    def objects(self) -> dict[str, int]:
        """Keys and sizes of what lies in S3 for this test's tenant."""
        found = self.s3.client.list_objects("test-bucket", prefix=f"{self.tenant}/", recursive=True)
        return {each.object_name: each.size or 0 for each in found if each.object_name}

    async def references(self) -> list[str]:
        """The ids of what the store says it has."""
        return [
            each.ref.artifact_id for each in (await self.client.list(self.tenant, session="s", limit=500)).artifacts
        ]


@contextlib.asynccontextmanager
async def deployed(
    nats_server: NatsServer,
    s3: S3Server,
    folder: Path,
    *,
    stores: int = 1,
    patience_s: float = 60,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Deployment]:
    """Everything up and ready."""
    every = {**s3.settings, "RUNWIRE_LOG_LEVEL": "debug", **(env or {})}
    stack = Stack(nats_server.url, folder, env=every, planners=0, tool_runners=0, gateways=0)
    for number in range(1, stores + 1):
        stack.add(f"artifact_store-{number}", "-m", "services.artifact_store")
    with stack.showing_logs():
        async with connected(nats_server.url) as bus:
            await provision(bus)
            with stack:
                yield Deployment(nats_server, s3, stack, bus, ArtifactClient(bus, patience_s=patience_s))


CHAOS = [pytest.mark.chaos, pytest.mark.timeout(300)]


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=CHAOS if kind != "rclone" else ()) for kind in kinds()]
)
def own_s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The embedded S3 server, in `make chaos` every one in turn; tests of this file kill it and start it again."""
    with S3Server(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture
async def deployment(server: NatsServer, own_s3: S3Server, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A store as a process, on that server."""
    own_s3.start()
    async with deployed(server, own_s3, tmp_path) as found:
        yield found


async def upload_under_way(deployment: Deployment, body: bytes) -> asyncio.Task[str]:
    """Begin to put something large, and return once some of its chunks are on their way."""
    chunks = 0

    async def count(_: Msg) -> None:
        nonlocal chunks
        chunks += 1

    async def put() -> str:
        return (await deployment.client.put(deployment.tenant, body, session="s")).artifact_id

    subscription = await deployment.bus.nc.subscribe("artifact.chunk.*", cb=count)
    task = asyncio.create_task(put())
    await wait_until(lambda: task.done() or chunks > 2, what="the upload is under way")
    await subscription.unsubscribe()
    assert not task.done()
    return task


def check_objects(deployment: Deployment, size: int) -> None:
    """Whatever is visible in S3 is whole."""
    assert set(deployment.objects().values()) <= {size}


async def check_read(deployment: Deployment, artifact: str, body: bytes) -> None:
    """It is what it was."""
    assert (await deployment.client.read(deployment.tenant, artifact, limit=len(body)))[1] == body


@pytest.mark.system
async def test_the_store_is_killed_in_mid_upload(deployment: Deployment) -> None:
    """The call waits for it to come back, starts again, and succeeds; there is one reference, with all its bytes."""
    body = secrets.token_bytes(16 * MIB)
    putting = await upload_under_way(deployment, body)
    deployment.stack.kill(NAME)
    check_objects(deployment, len(body))
    await asyncio.to_thread(deployment.stack.mend)
    await check_read(deployment, await putting, body)
    assert await deployment.references() == [await putting]


@pytest.mark.system
@pytest.mark.parametrize("away_s", [0, pytest.param(30, marks=CHAOS)])
async def test_calls_wait_while_the_s3_server_is_away(deployment: Deployment, away_s: int) -> None:
    """Gone or frozen: puts and gets wait, then succeed; the store says that it is not ready, and lives."""
    small, large = b"small", secrets.token_bytes(3 * MIB)
    ref = await deployment.client.put(deployment.tenant, small, session="s")
    calls: list[asyncio.Task[Any]]
    for leave, come_back in ((deployment.s3.kill, deployment.s3.start), (deployment.s3.freeze, deployment.s3.thaw)):
        leave()
        calls = [
            asyncio.create_task(deployment.client.put(deployment.tenant, secrets.token_bytes(100), session="s")),
            asyncio.create_task(deployment.client.put(deployment.tenant, large, session="s")),
            asyncio.create_task(deployment.client.read(deployment.tenant, ref.artifact_id, limit=100)),
        ]
        await wait_until(lambda: not deployment.stack.is_ready(NAME), timeout=30, what="the store is not ready")
        await asyncio.sleep(away_s)
        assert not any(call.done() for call in calls)
        come_back()
        await asyncio.gather(*calls)
        assert calls[2].result()[1] == small
    assert len(await deployment.references()) == 5
    await wait_until(lambda: deployment.stack.is_ready(NAME), what="the store is ready again")


@pytest.mark.system
async def test_the_s3_server_goes_in_mid_read(deployment: Deployment) -> None:
    """Killed and frozen: a reader waits for it, and goes on where it was."""
    body = secrets.token_bytes(16 * MIB)
    ref = await deployment.client.put(deployment.tenant, body, session="s")
    for leave, come_back in ((deployment.s3.kill, deployment.s3.start), (deployment.s3.freeze, deployment.s3.thaw)):
        chunks = (await deployment.client.get(deployment.tenant, ref.artifact_id)).chunks()
        read = [await anext(chunks) for _ in range(4)]
        leave()
        reading = asyncio.create_task(gathered(chunks))
        await wait_until(lambda: not deployment.stack.is_ready(NAME), timeout=30, what="the store has noticed")
        assert not reading.done()
        come_back()
        assert b"".join(read) + await reading == body
        await wait_until(lambda: deployment.stack.is_ready(NAME), what="the store is ready again")


async def gathered(chunks: AsyncIterator[bytes]) -> bytes:
    """All that is left."""
    return b"".join([chunk async for chunk in chunks])


@pytest.mark.system
async def test_the_nats_server_restarts(own_nats_server: NatsServer, rclone: S3Server, tmp_path: Path) -> None:
    """Calls under way wait for it; what was stored is still there."""
    async with deployed(own_nats_server, rclone, tmp_path) as deployment:
        body = secrets.token_bytes(16 * MIB)
        ref = await deployment.client.put(deployment.tenant, b"before", session="s")
        putting = await upload_under_way(deployment, body)
        own_nats_server.kill()
        own_nats_server.start()
        await putting
        assert (await deployment.client.read(deployment.tenant, ref.artifact_id, limit=10))[1] == b"before"
        await check_read(deployment, await putting, body)


async def stream(block: bytes, times: int) -> AsyncIterator[bytes]:
    """A large artifact that no test holds as a whole."""
    for _ in range(times):
        yield block


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("mib", [64, pytest.param(500, marks=[pytest.mark.chaos, pytest.mark.timeout(600)])])
async def test_memory_stays_flat_however_large_the_artifact(
    server: NatsServer, rclone: S3Server, tmp_path: Path, mib: int
) -> None:
    """It passes through the store and its client in a window of chunks."""
    async with deployed(server, rclone, tmp_path, patience_s=120) as deployment:
        await deployment.client.put(deployment.tenant, secrets.token_bytes(9 * MIB))
        processes = [deployment.stack.pid(NAME), os.getpid()]
        before = [resident(process) for process in processes]
        block = secrets.token_bytes(MIB)
        digest = hashlib.sha256(block * mib).hexdigest() if mib < 100 else None
        peaks = list(before)

        def note() -> None:
            for place, process in enumerate(processes):
                peaks[place] = max(peaks[place], resident(process))

        async def noting(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for chunk in chunks:
                note()
                yield chunk

        ref = await deployment.client.put(deployment.tenant, noting(stream(block, mib)))
        note()
        download = await deployment.client.get(deployment.tenant, ref.artifact_id)
        count = 0
        async for chunk in noting(download.chunks()):
            count += len(chunk)
        assert (ref.size, count) == (mib * MIB, mib * MIB)
        assert digest in {None, ref.sha256}
        grown = [peak - start for start, peak in zip(before, peaks, strict=True)]
        assert max(grown) < 48, f"store and client grew by {grown} MiB"


@pytest.mark.system
async def test_no_bytes_in_logs_errors_or_references(server: NatsServer, rclone: S3Server, tmp_path: Path) -> None:
    """At the level `debug`, whatever goes wrong with them."""
    canary = b"CANARY-" + secrets.token_hex(8).encode()
    large = (canary + b" ") * 120_000
    async with deployed(server, rclone, tmp_path, patience_s=3) as deployment:
        client, said = deployment.client, []
        said.append((await client.put(deployment.tenant, canary, filename="a.txt", session="s")).model_dump_json())
        said.append((await client.put(deployment.tenant, large, session="s")).model_dump_json())
        for body, claimed in (
            (canary, "image/png"),
            (large, "image/png"),
            (b"%PDF-" + large, "text/plain"),
            (large, ""),
        ):
            with contextlib.suppress(Exception):
                await client.put(deployment.tenant, body, mime_type=claimed or "?")
        raw = deployment.bus.nc
        for subject in ("artifact.put", "artifact.open", "artifact.get", "artifact.list", "artifact.assemble"):
            bodies = (canary, b'{"tenant": "' + canary + b'", "size": "' + canary + b'"}')
            headers = {"Runwire-Artifact": canary.decode()}
            said += [(await raw.request(subject, body, timeout=5, headers=headers)).data.decode() for body in bodies]
        deployment.s3.kill()
        for body in (canary, large):
            with pytest.raises(StorageUnavailable) as failure:
                await client.put(deployment.tenant, body + b"!")
            said.append(repr(failure.value))
        deployment.s3.start()
        said.append((await client.list(deployment.tenant, session="s")).model_dump_json())
        said.append(deployment.stack.log_of(NAME).read_text())
    assert not [text for text in said if canary.decode() in text]
    assert "artifact_stored" in said[-1]
