"""A service, or the server itself, made to write for somebody else by the reply subject of a request."""

from collections.abc import AsyncIterator

import pytest

from contracts.artifacts import HeadArtifact
from contracts.wire import subjects
from tests.identities.scene import Scene, storing
from tests.support.s3_servers import S3Server
from tests.support.stores import Store


@pytest.fixture
async def store(guarded: Scene, rclone: S3Server) -> AsyncIterator[Store]:
    """The real one."""
    async with storing(guarded, rclone) as found:
        yield found


@pytest.mark.parametrize(
    "reply",
    ["$JS.API.STREAM.DELETE.RUNS", "$JS.API.STREAM.PURGE.KV_artifacts", "$KV.artifacts.x", "$KV.artifacts.owner"],
)
async def test_the_artifact_store_answers_inboxes_only(guarded: Scene, store: Store, reply: str) -> None:
    """Neither by the rights that it lacks nor by those that it has, and such a request does not make it unready."""
    stored, me = await store.client.put("acme", b"The numbers."), await guarded.as_("gateway")
    before = {stream: await guarded.messages(stream) for stream in ("RUNS", "KV_artifacts")}
    head = HeadArtifact(tenant="acme", artifact_id=stored.artifact_id).model_dump_json().encode()
    for subject in (subjects.artifact_head(), subjects.artifact_get(), subjects.artifact_list()):
        for body in (head, b"{}", b""):
            await me.publish(subject, body, reply)
    assert (await store.client.head("acme", stored.artifact_id)) is not None
    assert {stream: await guarded.messages(stream) for stream in before} == before
    assert store.bus.denied is None


async def test_the_server_does_not_write_for_a_listener(guarded: Scene) -> None:
    """Its one request may be replied to in its own account only."""
    log = f"emit.acme.{guarded.run}.log"
    await guarded.write(log)
    before = await guarded.messages("RUNS")
    me = await guarded.as_("listener_acme")
    await me.subscribe(guarded.log)
    await me.publish(subjects.direct_last("RUNS", log), b"", guarded.log)
    own = await me.request(subjects.direct_last("RUNS", log))
    assert own is not None or me.complaints
    assert await guarded.messages("RUNS") == before
