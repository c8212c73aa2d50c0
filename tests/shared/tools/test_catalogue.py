"""The catalogue as its readers see it."""

import contextlib
from pathlib import Path

import pytest

from contracts.tools.messages import ToolSpec
from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.messaging.errors import BusError
from services.messaging.kv import Entry
from services.messaging.streams import provision
from services.runtime.settings import BusSettings
from services.shared.tools import catalogue as tool_catalogue
from services.shared.tools.catalogue import Catalogue, read_entries
from tests.support.catalogue import STREAM, key_subject
from tests.support.nats_server import NatsServer
from tests.support.small_disk import small_disk
from tests.support.waiting import wait_until


async def put(bus: Bus, key: str, value: ToolSpec | bytes, ttl_s: int | None = None) -> None:
    """Write a key as the tool runner does."""
    await bus.publish(key_subject(key), value, {"Nats-TTL": str(ttl_s)} if ttl_s else None)


async def test_an_expired_tool_is_gone_but_not_just_after_a_reconnect(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools reconnect too; what they announced may have expired meanwhile."""
    monkeypatch.setattr(tool_catalogue, "_READ_BACK_S", 0.1)
    seen = await Catalogue(bus).start()
    await put(bus, "tool.brief", ToolSpec(name="brief"), ttl_s=1)
    await wait_until(seen.live, what="the tool is seen")

    async def expired() -> bool:
        last = await bus.last(STREAM, key_subject("tool.brief"))
        return last is None or not last.data

    await wait_until(expired, what="the key has expired")
    assert seen.live()
    monkeypatch.setattr(tool_catalogue, "_SETTLING_S", 0)
    await wait_until(lambda: not seen.live(), what="the tool is gone")
    await seen.stop()


async def test_a_tool_that_has_just_left_may_return(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may only shortly after a connect, when nobody knows what has left."""
    seen = await Catalogue(bus).start()
    assert seen.may_return(["never"])
    assert not seen.may_return([])
    bus.up_since -= 100
    await put(bus, "tool.brief", ToolSpec(name="brief"))
    await wait_until(seen.live, what="the tool is seen")
    await put(bus, "tool.brief", b"")
    await wait_until(lambda: not seen.live(), what="the tool is gone")
    assert seen.may_return(["never", "brief"])
    assert not seen.may_return(["never"])
    monkeypatch.setattr(tool_catalogue, "_RESTART_S", 0.0)
    assert not seen.may_return(["brief"])
    await seen.stop()


async def test_no_tool_is_taken_off_the_list_while_nobody_can_refresh_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk outlasts the keys of all tools; the runs that wait for room are to find their tools then."""
    monkeypatch.setattr(tool_catalogue, "_READ_BACK_S", 0.1)
    monkeypatch.setattr(tool_catalogue, "_SETTLING_S", 0)
    monkeypatch.setattr(tool_catalogue, "_EXPIRY_SLACK_S", 0.0)
    with small_disk(tmp_path / "disk", mib=48) as disk:
        server = NatsServer(disk.folder / "nats")
        server.start()
        bus = Bus("reader", BusSettings(nats_url=server.url))
        await bus.connect()
        await provision(bus)
        watching = bus.tasks.keep("storage_probe", bus.storage.watch)
        seen = await Catalogue(bus).start()
        await put(bus, "tool.brief", ToolSpec(name="brief"), ttl_s=8)
        await wait_until(seen.live, what="the tool is seen")

        disk.fill()
        while not bus.storage.problems():
            with contextlib.suppress(BusError):
                await bus.publish(subjects.request("default", new_id()), b"x" * 400_000)

        async def expired() -> bool:
            return not (await read_entries(bus, keys.live_tool.all))[0]

        await wait_until(expired, timeout=20, what="the key should have expired")
        checks: list[str] = []

        async def counted(of: Bus, keys: str) -> tuple[dict[str, Entry], dict[str, Entry]]:
            checks.append(keys)
            return await read_entries(of, keys)

        monkeypatch.setattr(tool_catalogue, "read_entries", counted)
        await wait_until(lambda: len(checks) > 2, what="the list was checked since")
        assert list(seen.live()) == ["brief"]
        await seen.stop()
        watching.cancel()
        await bus.leave()
        server.kill()


@pytest.mark.parametrize("value", [b"", b"{", b'{"name": "other"}', b"[]"])
async def test_an_entry_that_cannot_be_read_hides_no_other(bus: Bus, value: bytes) -> None:
    """Nor does one that stands under the name of another tool."""
    await put(bus, "tool.broken", value)
    await put(bus, "tool.whole", ToolSpec(name="whole"))
    seen = await Catalogue(bus).start()
    assert list(seen.live()) == ["whole"]
    await seen.stop()
