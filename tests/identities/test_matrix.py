"""Every user against every subject, on a real server: what it allows and what it denies, by its own complaints."""

import re
import time

import pytest

from contracts.asyncapi import CHANNELS
from contracts.wire import keys
from contracts.wire.subjects import bucket_stream
from services.messaging.streams import BUCKETS, STREAMS
from services.planner.upkeep.deletions import Deletions, sweep
from services.shared.artifacts.client import ArtifactClient
from tests.identities import expected
from tests.identities.protocol import denied
from tests.identities.scene import Scene, storing
from tests.identities.users import USERS
from tests.planner.upkeep.test_deletions import FOR_GOOD, a_run, delete, traces
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stores import Store
from tests.support.waiting import wait_until

MIN_CELLS = 4000


@pytest.mark.parametrize("name", USERS)
def test_the_server_allows_what_a_user_needs_and_nothing_else(server: NatsServer, name: str) -> None:
    """Thousands of cells: user, publish or subscribe, subject. None may differ from the expectation."""
    publish, subscribe = expected.publishing(), expected.subscribing()
    found = denied(server.port, server.login(name), publish, subscribe)
    if name == "operator":
        assert (found.publish, found.subscribe) == (set(), set())
        return
    wrong: list[object] = [each for each, users in publish.items() if (each in found.publish) == (name in users)]
    wrong += [where for where, users in subscribe.items() if (where in found.subscribe) == (name in users)]
    assert wrong == [], f"{name} is denied what it needs, or allowed what it does not"


def test_every_subject_and_every_user_is_tried() -> None:
    """Subjects by their descriptions; users of every account; streams by their settings."""
    tried = {*expected.publishing()}
    for channel in CHANNELS:
        pattern = re.compile(re.sub(r"\\{\w+\\}", r"[^.]+", re.escape(channel.channel)))
        assert any(map(pattern.fullmatch, tried)), channel.name
    assert {*map(bucket_stream, BUCKETS), *(stream["name"] for stream in STREAMS)} == expected.STREAMS
    assert keys.CATALOGUE_BUCKET in BUCKETS
    assert len(USERS) * (len(tried) + len(expected.subscribing())) > MIN_CELLS


def test_a_server_without_users_denies_nothing(own_nats_server: NatsServer) -> None:
    """So a cell that is denied is denied by the rights."""
    found = denied(own_nats_server.port, {}, expected.publishing(), expected.subscribing())
    assert (found.publish, found.subscribe) == (set(), set())


def test_the_users_are_those_of_the_deployment(server: NatsServer) -> None:
    """None that a deployment has is left out."""
    assert {*server.passwords} == {*USERS}


async def test_runs_are_deleted_and_purged_under_identities(clean: Scene, rclone: S3Server) -> None:
    """By a planner, everywhere; and the artifact store sweeps."""
    planner = await clean.bus_of("planner")
    async with storing(clean, rclone) as store:
        everything = Store(store.client, clean.operator, store.collector, rclone, store.settings)
        deleted, ended, open_ = await a_run(everything), await a_run(everything), await a_run(everything, ended=False)
        await delete(clean.operator, deleted)
        await delete(clean.operator, open_)
        deletions = Deletions(planner, **FOR_GOOD)
        await deletions.check()
        await sweep(planner, ArtifactClient(planner), time.time_ns() // 1_000_000)

        async def is_gone() -> bool:
            return not await traces(clean.operator, deleted.run)

        await wait_until(is_gone, what="the deleted run has left nothing")
        left = await traces(clean.operator, ended.run)
        assert not {subject for subject in left if subject.startswith(("emit.", "$KV.runs."))}
        await store.collector.sweep()
