"""The nats-server of a data folder: its users, and folders of earlier versions."""

import json
import shutil
from pathlib import Path

import nats
import pytest

from runwire.local import embedded_nats
from runwire.local.supervisor import CannotLaunch
from tests.support.nats_server import NatsServer


async def test_the_streams_of_a_version_without_users_are_taken_over(tmp_path: Path) -> None:
    """Every message stays, and so do a consumer's place and its unacknowledged messages."""
    (tmp_path / "nats_login.json").write_text('{"user": "runwire", "password": "x"}')
    server = NatsServer(tmp_path)
    server.start()
    client = await nats.connect(server.url)
    stream = client.jetstream()
    await stream.add_stream(name="RUNS", subjects=["emit.>"])
    for number in range(20):
        await stream.publish("emit.a.b.log", str(number).encode())
    reader = await stream.pull_subscribe("emit.>", durable="reader")
    for message in (await reader.fetch(6))[:4]:
        await message.ack_sync()
    await client.close()
    server.stop()

    embedded_nats.configure(tmp_path, server.port, "always")
    assert not (tmp_path / "jetstream" / "jetstream" / "$G").exists()
    again = NatsServer(tmp_path, identities=True)
    again.start()
    client = await nats.connect(again.url, **again.login("operator"))
    state = json.loads((await client.request("$JS.API.CONSUMER.INFO.RUNS.reader")).data)
    assert (state["ack_floor"]["stream_seq"], state["num_ack_pending"], state["num_pending"]) == (4, 2, 14)
    assert (await client.jetstream().stream_info("RUNS")).state.messages == 20
    await client.close()
    again.kill()
    embedded_nats.passwords_of(tmp_path)
    assert not (tmp_path / "nats_login.json").exists()


def test_a_folder_with_streams_of_both_versions_stops_the_start(tmp_path: Path) -> None:
    """Nobody can say which counts. An empty one of the new version does not."""
    accounts = tmp_path / "jetstream" / "jetstream"
    (accounts / "$G" / "streams" / "RUNS").mkdir(parents=True)
    (accounts / "CORE" / "streams" / "RUNS").mkdir(parents=True)
    with pytest.raises(CannotLaunch, match="move one away"):
        embedded_nats.configure(tmp_path, 1, "always")
    shutil.rmtree(accounts / "CORE" / "streams" / "RUNS")
    embedded_nats.configure(tmp_path, 1, "always")
    assert (accounts / "CORE" / "streams" / "RUNS").exists()
    assert not (accounts / "$G").exists()


def test_a_damaged_file_of_users_stops_the_start(tmp_path: Path) -> None:
    """With its name and what to do."""
    (tmp_path / "identities.json").write_text("{")
    with pytest.raises(CannotLaunch, match=r"identities\.json cannot be read"):
        embedded_nats.passwords_of(tmp_path)
