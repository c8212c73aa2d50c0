"""The provisioner as a process: what it makes, and how it ends."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.wire import subjects
from contracts.wire.operation import EXIT_WRONG_SETTINGS
from services.messaging.connection import Bus
from services.messaging.errors import Misconfigured, Unavailable
from services.messaging.provisioner.__main__ import provision_once
from services.messaging.streams import BUCKETS, STREAMS, missing
from services.runtime.settings import BusSettings
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port, needs_program

ROOT = Path(__file__).resolve().parents[2]


async def provisioner(url: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RUNWIRE_NATS_URL": url, **settings}
    command = [sys.executable, "-P", "-m", "services.messaging.provisioner"]
    return await asyncio.to_thread(
        subprocess.run, command, env=env, capture_output=True, text=True, check=False, timeout=60
    )


async def test_it_makes_everything_and_does_it_again(own_nats_server: NatsServer) -> None:
    """Two at once too."""
    async with connected(own_nats_server.url) as bus:
        assert len(await missing(bus)) == len(STREAMS) + len(BUCKETS)
        ended = await asyncio.gather(*(provisioner(own_nats_server.url) for _ in range(2)))
        assert [each.returncode for each in ended] == [0, 0], [each.stderr for each in ended]
        assert await missing(bus) == []


async def test_it_updates_a_stream_of_an_earlier_version(bus: Bus, own_nats_server: NatsServer) -> None:
    """With fewer subjects; what it holds stays, and a service that is connected goes on."""
    wanted = next(config for config in STREAMS if config["name"] == subjects.RUNS)
    log, context = subjects.log("default", "0" * 32), subjects.context("default", "0" * 32)
    await bus.api("STREAM.UPDATE.RUNS", {**wanted, "subjects": [subjects.log.all]})
    await bus.publish(log, b"{}")
    (found,) = await missing(bus)
    assert subjects.context.all in found

    assert (await provisioner(own_nats_server.url)).returncode == 0

    assert await missing(bus) == []
    assert await bus.publish(context, b"{}") == 2
    assert await bus.last(subjects.RUNS, log) is not None


async def test_what_cannot_be_changed_ends_it_with_the_reason(own_nats_server: NatsServer) -> None:
    """Another start would end the same way."""
    wanted = next(config for config in STREAMS if config["name"] == subjects.CALLS)
    async with connected(own_nats_server.url) as bus:
        await bus.api("STREAM.CREATE.CALLS", {**wanted, "storage": "memory"})
    ended = await provisioner(own_nats_server.url)
    assert ended.returncode == EXIT_WRONG_SETTINGS
    assert ended.stderr.splitlines()[-1].startswith("stream CALLS: ")


async def test_an_address_without_nats_is_named() -> None:
    """Without user and password."""
    with pytest.raises(TimeoutError, match=r"NATS is not connected: no NATS answers at 127\.0\.0\.1:1$"):
        await provision_once(BusSettings(nats_url="nats://user:secret@127.0.0.1:1"), 1)


async def test_without_jetstream_its_switch_is_named() -> None:
    """To services that wait for the streams, too."""
    port = free_port()
    command = [str(needs_program("nats-server")), "-a", "127.0.0.1", "-p", str(port)]
    server = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    async with connected(f"nats://127.0.0.1:{port}") as bus:
        with pytest.raises(Unavailable, match="is it on, for this account too"):
            await missing(bus)
    server.terminate()
    await server.wait()


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ("max_payload: 1MB", "max_payload of NATS is 1,048,576 bytes: set it to 8MB"),
        (
            'authorization { user: "a", password: "b" }',
            r"NATS is not connected: the login of the user \(none\) is refused",
        ),
    ],
)
async def test_a_server_that_does_not_do_is_told_why(tmp_path: Path, extra: str, reason: str) -> None:
    """Without waiting for what no waiting brings, and with the server's reason."""
    with NatsServer(tmp_path, extra=extra) as server, pytest.raises((Misconfigured, TimeoutError), match=reason):
        await provision_once(BusSettings(nats_url=server.url), 2)
