"""Reading from the S3 server itself: a short cut that nobody notices but by its speed, over real servers."""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from nats.aio.msg import Msg

from contracts import subjects
from contracts.artifacts import DIRECT_HEADER, ArtifactRef, GetArtifact, PresignedUrl
from contracts.ids import new_id
from contracts.limits import CHUNK_BYTES, MIN_DIRECT_BYTES
from contracts.tools import REPLY_HEADER
from runwire.local.embedded_s3 import Keys
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import StorageUnavailable
from services.shared.artifacts.s3_reads import ReadFailed, S3Reads, s3_reads_of
from tests.support import s3_servers, stores
from tests.support.buses import connected
from tests.support.nats_server import NatsServer
from tests.support.relay import Mood, Relay, relayed
from tests.support.s3_servers import S3Server
from tests.support.stores import Store, serving
from tests.support.waiting import wait_until

MIB = 1 << 20
SIZE = 9 * MIB + 5


@contextlib.asynccontextmanager
async def requests_of(store: Store) -> AsyncIterator[list[GetArtifact]]:
    """The gets that anybody sends to the store."""
    found: list[GetArtifact] = []

    async def note(message: Msg) -> None:
        found.append(GetArtifact.model_validate_json(message.data))

    subscription = await store.bus.nc.subscribe(subjects.ARTIFACT_GET, cb=note)
    await store.bus.barrier()
    yield found
    await store.bus.barrier()
    await subscription.unsubscribe()


async def put(store: Store, size: int = SIZE, **scope: Any) -> tuple[ArtifactRef, bytes]:
    """Something to read."""
    body = secrets.token_bytes(size)
    return await store.client.put(store.tenant, body, **scope), body


async def location(store: Store, ref: ArtifactRef, **more: Any) -> Msg:
    """What the store answers to whoever would read directly."""
    asked = {"tenant": store.tenant, "artifact_id": ref.artifact_id, "direct": True, **more}
    return await store.bus.request(subjects.ARTIFACT_GET, GetArtifact(**asked).model_dump_json().encode(), 5)


async def check(store: Store, ref: ArtifactRef, body: bytes) -> None:
    """It is what it was."""
    assert (await store.client.read(store.tenant, ref.artifact_id, limit=len(body)))[1] == body


@pytest.fixture
async def behind(rclone: S3Server, server: NatsServer) -> AsyncIterator[tuple[Store, Relay]]:
    """A store whose readers are at the mercy of a relay."""
    async with relayed(rclone) as (relay, seen), serving(seen, server.url) as found:
        yield found, relay


@pytest.mark.parametrize("size", [MIN_DIRECT_BYTES, MIB, CHUNK_BYTES, CHUNK_BYTES + 1, SIZE])
async def test_large_ones_cross_nats_as_a_url(store: Store, size: int) -> None:
    """One request, whatever the size, and the bytes come from every S3 server."""
    ref, body = await put(store, size)
    async with requests_of(store) as asked:
        await check(store, ref, body)
    assert [each.direct for each in asked] == [True]
    assert s3_reads_of(store.bus).is_usable


async def test_small_ones_come_with_the_answer(store: Store) -> None:
    """And so do short ranges, and short ends."""
    ref, body = await put(store, MIN_DIRECT_BYTES - 1)
    answer = await location(store, ref)
    assert (answer.data, DIRECT_HEADER in (answer.headers or {})) == (body, False)
    ref, body = await put(store)
    assert (await location(store, ref, offset=SIZE - 10)).data == body[-10:]
    download = await store.client.get(store.tenant, ref.artifact_id, offset=100, length=1000)
    assert await download.read(1000) == body[100:1100]


@pytest.mark.parametrize(
    ("offset", "length"), [(1, None), (MIB, 300_000), (MIB, CHUNK_BYTES), (7, 5 * MIB), (SIZE - MIB, 2 * MIB)]
)
async def test_ranges(store: Store, offset: int, length: int | None) -> None:
    """Of any length, on every S3 server."""
    ref, body = await put(store)
    async with requests_of(store) as asked:
        download = await store.client.get(store.tenant, ref.artifact_id, offset=offset, length=length)
        assert await download.read(SIZE) == body[offset : None if length is None else offset + length]
    assert len(asked) == 1


async def test_who_does_not_ask_for_it_gets_bytes(store: Store) -> None:
    """A client of an earlier version, and one that is told to."""
    ref, body = await put(store)
    answer = await location(store, ref, direct=False)
    assert (answer.data, DIRECT_HEADER in (answer.headers or {})) == (body[:CHUNK_BYTES], False)
    store.bus.shared(S3Reads, lambda: S3Reads(allowed=False))
    async with requests_of(store) as asked:
        await check(store, ref, body)
    assert len(asked) == 5
    assert not any(each.direct for each in asked)


async def test_a_store_that_gives_out_no_urls_is_read_as_ever(rclone: S3Server, server: NatsServer) -> None:
    """One of an earlier version, and one that is told to."""
    async with serving(rclone, server.url, artifact_direct="never") as store:
        ref, body = await put(store)
        await check(store, ref, body)
        assert DIRECT_HEADER not in ((await location(store, ref)).headers or {})


async def test_who_may_not_see_it_gets_no_url(store: Store) -> None:
    """Another tenant, session or run."""
    ref, _ = await put(store, session="s", run=new_id())
    for other in ({"tenant": f"{store.tenant}x"}, {"session_id": "t"}, {"run_id": new_id()}):
        answer = await location(store, ref, **other)
        assert (answer.headers or {})[REPLY_HEADER] == "failure"
        assert b"artifact_not_found" in answer.data
        assert b"X-Amz" not in answer.data


async def test_a_url_is_for_one_object_and_some_minutes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forged and an expired one are worth nothing."""
    (mine, body), (other, _) = await put(store), await put(store)
    signed = PresignedUrl.model_validate_json((await location(store, mine)).data)
    assert 0 < signed.expires_at - time.time() * 1000 <= 300_000
    reads = s3_reads_of(store.bus)
    assert (await reads.read(signed.url, 0, SIZE, whole=True))[0] == body
    forged = signed.url.replace(mine.sha256, other.sha256).replace(f"/{mine.sha256[:2]}/", f"/{other.sha256[:2]}/")
    monkeypatch.setattr("services.artifact_store.store._DIRECT_URL_S", 1)
    expired = PresignedUrl.model_validate_json((await location(store, mine)).data)
    await asyncio.sleep(max(0, expired.expires_at / 1000 - time.time()) + 1.1)
    for url in (forged, expired.url):
        with pytest.raises(ReadFailed) as failure:
            await reads.read(url, 0, SIZE, whole=True)
        assert "X-Amz" not in repr(failure.value)
        assert failure.value.__cause__ is None


async def test_a_url_that_expires_meanwhile_is_renewed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader has taken its time after the first bytes; it goes on directly."""
    ref, body = await put(store)
    monkeypatch.setattr("services.artifact_store.store._DIRECT_URL_S", 2)
    async with requests_of(store) as asked:
        download = await store.client.get(store.tenant, ref.artifact_id)
        monkeypatch.undo()
        await asyncio.sleep(3.2)
        assert await download.read(SIZE) == body
    assert [each.direct for each in asked] == [True, True]
    assert s3_reads_of(store.bus).is_usable


async def test_keys_that_change_meanwhile(server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The S3 server and the store are started again with new ones: the reader gets a new URL and goes on directly."""
    with S3Server("rclone", tmp_path) as s3:
        async with connected(server.url) as bus:
            async with serving(s3, server.url) as store:
                ref, body = await put(store)
                download = await ArtifactClient(bus, patience_s=20).get(store.tenant, ref.artifact_id)
            s3.kill()
            for module in (s3_servers, stores):
                monkeypatch.setattr(module, "KEYS", Keys(access="another", secret="anothersecret"))
            s3.start()
            async with serving(s3, server.url):
                assert await download.read(SIZE) == body
            assert s3_reads_of(bus).is_usable


@pytest.mark.parametrize("mood", ["refuse", "freeze", "deny", "garbage"])
async def test_a_server_out_of_reach_is_forgotten_for_a_minute(behind: tuple[Store, Relay], mood: Mood) -> None:
    """The store gives the bytes, and nobody tries again so soon; later they do."""
    store, relay = behind
    ref, body = await put(store)
    relay.mood = mood
    began = time.monotonic()
    await check(store, ref, body)
    assert time.monotonic() - began < 10
    tried = relay.reads
    assert tried >= 1
    await check(store, ref, body)
    assert (relay.reads, s3_reads_of(store.bus).is_usable) == (tried, False)
    relay.mood = "pass"
    s3_reads_of(store.bus)._paused_until = 0
    await check(store, ref, body)
    assert relay.reads > tried


async def test_a_name_that_is_unknown_here_is_out_of_reach(embedded: Store) -> None:
    """As that of the S3 server in another network."""
    for url in (
        "http://storage.invalid:9000/a?b",
        "https://127.0.0.1:1/a?b",
        f"https://127.0.0.1:{embedded.s3.port}/a?b",
    ):
        with pytest.raises(ReadFailed):
            await s3_reads_of(embedded.bus).read(url, 0, 10, whole=True)


async def test_what_is_cut_off_goes_on_where_it_was(behind: tuple[Store, Relay]) -> None:
    """With a new URL, directly."""
    store, relay = behind
    ref, body = await put(store)
    relay.cut_after = 5 * MIB
    async with requests_of(store) as asked:
        await check(store, ref, body)
    assert [(each.direct, each.length) for each in asked] == [(True, CHUNK_BYTES), (True, 0)]
    assert relay.cut_after is None
    assert s3_reads_of(store.bus).is_usable


@pytest.mark.parametrize("mood", ["refuse", "freeze"])
async def test_what_stays_cut_off_comes_through_the_store(behind: tuple[Store, Relay], mood: Mood) -> None:
    """From where it was."""
    store, relay = behind
    ref, body = await put(store)
    download = await store.client.get(store.tenant, ref.artifact_id)
    relay.mood = mood
    async with requests_of(store) as asked:
        assert await download.read(SIZE) == body
    assert next(each.offset for each in asked if not each.direct) >= CHUNK_BYTES
    assert not s3_reads_of(store.bus).is_usable


async def test_a_reader_that_leaves_a_silent_server_leaves_at_once(behind: tuple[Store, Relay]) -> None:
    """Its thread is woken; the connection is not used again."""
    store, relay = behind
    ref, _ = await put(store)
    download = await store.client.get(store.tenant, ref.artifact_id)
    relay.mood = "freeze"
    reading = asyncio.create_task(download.read(SIZE))
    await wait_until(lambda: relay.reads > 1, what="the second read has come")
    before = time.monotonic()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert time.monotonic() - before < 1
    relay.mood = "pass"
    await check(store, ref, (await _whole(store, ref)))


async def _whole(store: Store, ref: ArtifactRef) -> bytes:
    return (await store.client.read(store.tenant, ref.artifact_id, limit=SIZE))[1]


async def test_other_bytes_are_found_out(embedded: Store) -> None:
    """Of the same size, under the right name: small and large, nobody takes them for the artifact."""
    for size in (MIB, SIZE):
        ref, _ = await put(embedded, size)
        key = next(key for key in embedded.objects() if ref.sha256 in key)
        path = embedded.s3.data / embedded.settings.s3_bucket / key
        path.write_bytes(secrets.token_bytes(size))
        with pytest.raises(StorageUnavailable) as failure:
            await _whole(embedded, ref)
        assert not failure.value.retryable


async def test_many_readers_share_what_is_open(store: Store) -> None:
    """More at once than threads; of two requests each, not all need a connection of their own."""
    ref, body = await put(store, 3 * MIB)
    readers = 40
    read = await asyncio.gather(*(_whole(store, ref) for _ in range(readers)))
    assert {hashlib.sha256(each).digest() for each in read} == {hashlib.sha256(body).digest()}
    origin = urlsplit(PresignedUrl.model_validate_json((await location(store, ref)).data).url)
    assert s3_reads_of(store.bus)._pool.connection_from_host(origin.hostname, origin.port).num_connections < 2 * readers


def test_a_url_is_not_shown() -> None:
    """Where somebody prints the message."""
    assert "secret" not in repr(PresignedUrl(url="http://x/?secret", expires_at=1))


async def test_an_impatient_reader_hears_what_is_wrong(server: NatsServer, rclone: S3Server) -> None:
    """The S3 server is away altogether: typed, retryable, in time."""
    async with relayed(rclone) as (relay, seen), serving(seen, server.url) as store:
        ref, body = await put(store)
        await relay.stop()
        hasty = ArtifactClient(store.bus, patience_s=0.5)
        with pytest.raises(StorageUnavailable) as failure:
            await hasty.read(store.tenant, ref.artifact_id, limit=len(body))
        assert failure.value.retryable
        assert "X-Amz" not in failure.value.reason
