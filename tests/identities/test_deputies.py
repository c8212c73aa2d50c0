"""A service, or the server itself, made to write for somebody else by the reply subject of a request."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from contracts import subjects
from contracts.artifacts import HeadArtifact
from contracts.ids import new_id
from services.artifact_store.app import running
from services.messaging.connection import Bus
from services.messaging.nats_link import NatsLink
from services.runtime.health import Health
from services.shared.artifacts.client import ArtifactClient
from tests.identities.scene import Attacker, Scene
from tests.support.s3_servers import S3Server
from tests.support.stores import settings_for
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Where the artifact store keeps bytes."""
    with S3Server("rclone", tmp_path_factory.mktemp("s3")) as found:
        yield found


@dataclass
class Deputy:
    """The real artifact store, the real gateway's connection, and one that was taken over."""

    scene: Scene
    store: Bus
    health: Health
    client: ArtifactClient
    gateway: Attacker


@pytest.fixture
async def deputy(guarded: Scene, s3: S3Server) -> AsyncIterator[Deputy]:
    """At work."""
    settings = settings_for(s3, **guarded.server.settings("artifact_store"))
    link = NatsLink(Bus("artifact_store", settings))
    health = Health(link.name, link.problems)
    await link.connect()
    gateway = await guarded.bus_of("gateway")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(link.leave)
        await stack.enter_async_context(running(settings, link.bus, health))
        health.started = True
        await wait_until(lambda: not health.problems(), what="the store is ready")
        found = Deputy(guarded, link.bus, health, ArtifactClient(gateway), await guarded.as_("gateway"))
        yield found
        assert found.health.problems() == []


@pytest.mark.parametrize(
    "reply",
    ["$JS.API.STREAM.DELETE.RUNS", "$JS.API.STREAM.PURGE.KV_artifacts", "$KV.artifacts.x", "$KV.artifacts.owner"],
)
async def test_the_artifact_store_answers_inboxes_only(deputy: Deputy, reply: str) -> None:
    """Neither by the rights that it lacks nor by those that it has, and such a request does not make it unready."""
    stored = await deputy.client.put("acme", b"The numbers.")
    before = {stream: await deputy.scene.messages(stream) for stream in ("RUNS", "KV_artifacts")}
    head = HeadArtifact(tenant="acme", artifact_id=stored.artifact_id).model_dump_json().encode()
    for subject in (subjects.ARTIFACT_HEAD, subjects.ARTIFACT_GET, subjects.ARTIFACT_LIST):
        for body in (head, b"{}", b""):
            await deputy.gateway.publish(subject, body, reply)
    assert (await deputy.client.head("acme", stored.artifact_id)) is not None
    assert {stream: await deputy.scene.messages(stream) for stream in before} == before
    assert deputy.store.denied is None


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


async def test_the_server_writes_for_a_gateway_that_is_taken_over(guarded: Scene) -> None:
    """Permissions cannot prevent it, so readers refuse such a record (below)."""
    assert await _replayed(guarded) == 1


async def _replayed(scene: Scene) -> int:
    """Have the server copy a request of the gateway's own making to the log of a run; return what was stored."""
    before = await scene.messages("RUNS")
    me = await scene.as_("gateway")
    request = f"request.other.{new_id()}"
    await me.publish(request, b'{"v":1,"events":[]}', Runwire_Events="done")
    asked = json.dumps({"last_by_subj": request}).encode()
    await me.publish(subjects.direct_get("REQUESTS"), asked, scene.log)

    async def is_stored() -> bool:
        return await scene.messages("RUNS") != before

    await me.achieves(is_stored)
    return (await scene.messages("RUNS") or 0) - (before or 0)
