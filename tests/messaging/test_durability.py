"""What a killed nats-server keeps, with each `sync_interval` that `runwire up --sync` offers."""

from pathlib import Path

import pytest

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.streams import missing
from tests.support.buses import connected, provisioned
from tests.support.nats_server import NatsServer

_WRITES = 200


@pytest.mark.parametrize("sync", ["always", "1s"])
async def test_a_killed_server_keeps_every_acknowledged_write(sync: str, tmp_path: Path) -> None:
    """SIGKILL right after the last acknowledgement. Only a power cut tells the two apart."""
    with NatsServer(tmp_path / "nats", sync=sync) as server:
        async with provisioned(server.url) as bus:
            sequences = [await bus.publish(subjects.request("default", new_id()), b"{}") for _ in range(_WRITES)]
            server.kill()
        server.start()
        async with connected(server.url) as bus:
            state = (await bus.api("STREAM.INFO.REQUESTS", {}))["state"]
            assert await missing(bus) == []  # Services that start now wait for all streams.
        assert (state["messages"], state["last_seq"]) == (_WRITES, sequences[-1])
