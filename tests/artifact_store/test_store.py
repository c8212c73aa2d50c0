"""What callers of the store can rely on, over a real NATS server and every S3 server."""

import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable
from itertools import product
from typing import Any

import pytest

from contracts.artifacts import ARTIFACT_HEADER, PutArtifact
from contracts.tools.messages import REPLY_HEADER
from contracts.wire import subjects
from contracts.wire.base import CHUNK_BYTES
from contracts.wire.names import new_id
from services.shared.artifacts.client import upload
from services.shared.artifacts.errors import ArtifactInvalid, ArtifactNotFound, ArtifactTooLarge
from services.shared.artifacts.requests import Bytes, header_value
from tests.support.stores import Store
from tests.support.waiting import wait_until

MIB = 1 << 20
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


async def pieces(body: bytes, size: int = 70_000) -> AsyncIterator[bytes]:
    """A stream of bytes, as a request's body is one."""
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("size", [0, 1, 1000, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * MIB + 7])
async def test_bytes_come_back_as_they_went(store: Store, size: int) -> None:
    """Inline and in chunks, from memory and from a stream; the reference tells size and digest."""
    body = secrets.token_bytes(size)
    for data in (body, pieces(body)):
        ref = await store.client.put(store.tenant, data, filename="a.bin")
        assert (ref.size, ref.sha256, ref.filename) == (size, hashlib.sha256(body).hexdigest(), "a.bin")
        found, read = await store.client.read(store.tenant, ref.artifact_id, limit=size)
        assert (found, read) == (ref, body)
    assert len(store.objects()) == 2


async def test_ranges(store: Store) -> None:
    """Any part can be read; beyond the end there is nothing."""
    body = secrets.token_bytes(5 * MIB + 100)
    ref = await store.client.put(store.tenant, body)
    ranges = [(0, 10), (10, 1), (CHUNK_BYTES - 5, 10), (0, None), (MIB, None), (5 * MIB + 100, None), (9 * MIB, 5)]
    for offset, length in ranges:
        download = await store.client.get(store.tenant, ref.artifact_id, offset=offset, length=length)
        expected = body[offset:] if length is None else body[offset : offset + length]
        assert download.length == len(expected)
        assert b"".join([chunk async for chunk in download.chunks()]) == expected


async def test_what_one_may_not_see_does_not_exist(store: Store) -> None:
    """Unknown, deleted, or of another tenant, session or run: the same fault for every verb."""
    run, ask = new_id(), store.client
    ref = await ask.put(store.tenant, PNG, session="mine", run=run)
    gone = await ask.put(store.tenant, b"gone")
    await ask.delete(store.tenant, gone.artifact_id)
    faults = set()
    scopes: list[tuple[str, str, dict[str, Any]]] = [
        (store.tenant, new_id(), {}),
        (f"{store.tenant}-b", ref.artifact_id, {}),
        (store.tenant, gone.artifact_id, {}),
        (store.tenant, ref.artifact_id, {"session": "yours"}),
        (store.tenant, ref.artifact_id, {"run": new_id()}),
    ]
    for tenant, artifact, scope in scopes:
        calls: list[Awaitable[object]] = [
            ask.get(tenant, artifact, **scope),
            ask.head(tenant, artifact, **scope),
            ask.delete(tenant, artifact, **scope),
        ]
        for call in calls:
            with pytest.raises(ArtifactNotFound) as failure:
                await call
            faults.add(failure.value.fault())
    assert len(faults) == 1
    assert (await ask.head(store.tenant, ref.artifact_id, session="mine", run=run)).run_id == run


async def test_artifacts_expire(embedded: Store) -> None:
    """At their time they are gone for readers; their bytes follow."""
    ref = await embedded.client.put(embedded.tenant, b"brief", ttl_s=1, session="s")
    assert ref.expires_at is not None

    async def is_gone() -> bool:
        try:
            await embedded.client.head(embedded.tenant, ref.artifact_id)
        except ArtifactNotFound:
            return True
        return False

    await wait_until(is_gone, what="it has expired")
    assert not (await embedded.client.list(embedded.tenant, session="s")).artifacts


async def test_limits(embedded: Store) -> None:
    """Of the store, of a stream's receiver, of a reader."""
    ask, body = embedded.client, secrets.token_bytes(2 * MIB)
    with pytest.raises(ArtifactTooLarge):
        await ask.put(embedded.tenant, pieces(body), limit=MIB)
    with pytest.raises(ArtifactTooLarge):
        await ask.put(embedded.tenant, body, limit=MIB)
    ref = await ask.put(embedded.tenant, body)
    with pytest.raises(ArtifactTooLarge):
        await ask.read(embedded.tenant, ref.artifact_id, limit=MIB)
    huge = PutArtifact(tenant=embedded.tenant, artifact_id=new_id(), size=1 << 40, sha256="0" * 64)
    answer = await embedded.bus.nc.request(subjects.artifact_open(), huge.model_dump_json().encode())
    assert b"artifact_too_large" in answer.data


async def test_bytes_that_are_not_what_was_announced_leave_nothing(embedded: Store) -> None:
    """Neither a reference nor an object, inline or in chunks."""
    body = secrets.token_bytes(CHUNK_BYTES + 5)
    put = PutArtifact(tenant=embedded.tenant, artifact_id=new_id(), size=3, sha256=hashlib.sha256(b"abc").hexdigest())
    for wrong in (b"abd", b"ab", b"abcd"):
        answer = await embedded.bus.nc.request(
            subjects.artifact_put(), wrong, headers={ARTIFACT_HEADER: header_value(put)}
        )
        assert (answer.headers or {})[REPLY_HEADER] == "failure"
        assert b"artifact_invalid" in answer.data
    wrong_digest = put.model_copy(update={"size": len(body), "sha256": hashlib.sha256(b"other").hexdigest()})
    with pytest.raises(ArtifactInvalid):
        await upload(embedded.client._requests, wrong_digest, Bytes(body))
    assert not embedded.objects()
    with pytest.raises(ArtifactNotFound):
        await embedded.client.head(embedded.tenant, put.artifact_id)


async def test_requests_that_are_none_get_a_fault(embedded: Store) -> None:
    """On every verb, in a moment, without their own words."""
    bodies = (b"", b"{}", b"not json", b"[1, 2]", b'{"tenant": "../x", "artifact_id": "*"}', b"\xff\xfe", b'"text"')
    for verb, body in product(("get", "head", "list", "delete", "open", "put"), bodies):
        answer = await embedded.bus.nc.request(getattr(subjects, f"artifact_{verb}")(), body, timeout=5)
        assert (answer.headers or {})[REPLY_HEADER] == "failure"
        assert b"artifact_invalid" in answer.data
        assert b"../x" not in answer.data
