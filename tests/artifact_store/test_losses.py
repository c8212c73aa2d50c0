"""What happens to artifacts when something dies: the store as a process of its own, real servers, real signals."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.shared.artifacts.client import ArtifactClient
from tests.support.buses import provisioned
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server, kinds
from tests.support.stack import Stack
from tests.support.waiting import wait_until

MIB = 1 << 20
NAME = "artifact_store-1"


class Deployment:
    """An S3 server, and a store as a process."""

    def __init__(self, s3: S3Server, stack: Stack, client: ArtifactClient) -> None:
        self.s3 = s3
        self.stack = stack
        self.client = client
        self.tenant = f"t{secrets.token_hex(5)}"


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
    own_s3.start()
    env = {**own_s3.settings, "RUNWIRE_LOG_LEVEL": "debug"}
    stack = Stack(server.url, tmp_path, env=env, planners=0, tool_runners=0, gateways=0)
    stack.add(NAME, "-m", "services.artifact_store")
    async with provisioned(server.url) as bus:
        with stack.showing_logs(), stack:
            yield Deployment(own_s3, stack, ArtifactClient(bus, patience_s=60))


@pytest.mark.parametrize("away_s", [0, pytest.param(30, marks=CHAOS)])
async def test_calls_wait_while_the_s3_server_is_away(deployment: Deployment, away_s: int) -> None:
    """Gone or frozen: puts and gets wait, then succeed, and a reader goes on where it was; the store is not ready."""
    client, tenant, large = deployment.client, deployment.tenant, secrets.token_bytes(16 * MIB)
    ref = await client.put(tenant, large, session="s")
    for leave, come_back in ((deployment.s3.kill, deployment.s3.start), (deployment.s3.freeze, deployment.s3.thaw)):
        chunks = (await client.get(tenant, ref.artifact_id)).chunks()
        begun = [await anext(chunks) for _ in range(4)]
        leave()
        puts = [client.put(tenant, secrets.token_bytes(size), session="s") for size in (100, 3 * MIB)]
        reads = [client.read(tenant, ref.artifact_id, limit=len(large)), gathered(chunks)]
        calls: list[asyncio.Future[Any]] = [asyncio.ensure_future(each) for each in (*puts, *reads)]
        await wait_until(lambda: not deployment.stack.is_ready(NAME), timeout=30, what="the store is not ready")
        await asyncio.sleep(away_s)
        assert [call for call in calls[:3] if call.done()] == [], "only the rest of a read may be on its way already"
        come_back()
        *_, read, rest = await asyncio.gather(*calls)
        assert read[1] == b"".join(begun) + rest == large
        await wait_until(lambda: deployment.stack.is_ready(NAME), what="the store is ready again")
    assert len((await client.list(tenant, session="s")).artifacts) == 5


async def gathered(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])
