"""What a service says of a NATS that does not store: with a real server on a disk that is full."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.operation import NOT_STORED
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.nats_link import NatsLink
from services.messaging.streams import BUCKETS, STREAMS, bucket, provision
from services.runtime.health import Health
from services.runtime.settings import BusSettings
from tests.support.nats_server import NatsServer
from tests.support.small_disk import SmallDisk, small_disk
from tests.support.waiting import wait_until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", mib=48) as found:
        yield found


@pytest.fixture
def server(disk: SmallDisk) -> Iterator[NatsServer]:
    with NatsServer(disk.folder / "nats") as found:
        yield found


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    """A service's connection, which watches its storage as a service does."""
    found = Bus("test", BusSettings(nats_url=server.url))
    await found.connect()
    await provision(found)
    watching = found.tasks.keep("storage_probe", found.storage.watch)
    yield found
    watching.cancel()
    await found.leave()


async def write(bus: Bus, size: int = 400_000) -> bool:
    """Whether a request was stored."""
    try:
        await bus.publish(subjects.request("default", new_id()), b"x" * size)
    except BusError:
        return False
    return True


async def test_a_full_disk_fails_readiness_until_nats_stores_again(
    bus: Bus, server: NatsServer, disk: SmallDisk
) -> None:
    """nats-server remembers its error until it is started again; then the service notices without a request."""
    health = Health(bus.name, NatsLink(bus).problems, started=True)
    assert await write(bus)
    assert health.problems() == []

    disk.fill()
    while await write(bus):
        pass
    await wait_until(health.problems, what="readiness has failed")
    assert health.problems()[0].startswith(f"{NOT_STORED}: REQUESTS: ")
    assert "full" in health.problems()[0] or "no space" in health.problems()[0]

    disk.make_room()
    await asyncio.sleep(1.5)
    assert not await write(bus, 10)
    assert health.problems()

    server.stop()
    server.start()
    await wait_until(lambda: not health.problems(), timeout=5, what="the service is ready again")
    assert await write(bus)


async def test_a_server_that_stands_still_fails_readiness_with_the_first_write(bus: Bus, server: NatsServer) -> None:
    """Before anything else notices; and it is ready again with the first answer."""
    health = Health(bus.name, NatsLink(bus).problems, started=True)
    server.freeze()
    assert not await write(bus, 10)
    assert "no message from NATS since" in health.problems()[0]
    server.thaw()
    await wait_until(lambda: not health.problems(), what="the service is ready again")


def test_every_subject_that_is_stored_leads_to_its_stream() -> None:
    """Otherwise a write that fails there is suspected nowhere."""
    for config in (*STREAMS, *map(bucket, BUCKETS)):
        for subject in config["subjects"]:
            assert subjects.stream_of(subject) == config["name"], subject
