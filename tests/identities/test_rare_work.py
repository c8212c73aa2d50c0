"""Work that few runs lead to: it has the rights that it needs. The server's log shows a denied one (`clean`)."""

import time

from services.messaging.pull_consumer import Delivery
from services.planner.upkeep import retention
from services.planner.upkeep.deletions import Deletions
from services.planner.upkeep.orphans import Orphans
from services.shared.artifacts.client import ArtifactClient
from tests.identities.scene import Scene, storing
from tests.planner.upkeep.test_deletions import FOR_GOOD, a_run, delete, traces
from tests.support.s3_servers import S3Server
from tests.support.stores import Store
from tests.support.waiting import wait_until


async def test_runs_are_deleted_and_purged_under_identities(clean: Scene, s3: S3Server) -> None:
    """By a planner, everywhere; and the artifact store sweeps."""
    planner = await clean.bus_of("planner")
    async with storing(clean, s3) as store:
        everything = Store(store.client, clean.operator, store.collector, s3, store.settings)
        deleted, ended, open_ = await a_run(everything), await a_run(everything), await a_run(everything, ended=False)
        await delete(clean.operator, deleted)
        await delete(clean.operator, open_)
        deletions = Deletions(planner, **FOR_GOOD)
        await deletions.check()
        await retention.sweep(planner, ArtifactClient(planner), time.time_ns() // 1_000_000)

        async def is_gone() -> bool:
            return not await traces(clean.operator, deleted.run)

        await wait_until(is_gone, what="the deleted run has left nothing")
        left = await traces(clean.operator, ended.run)
        assert not {subject for subject in left if subject.startswith(("emit.", "$KV.runs."))}
        await store.collector.sweep()


async def test_orphaned_messages_are_found_under_identities(clean: Scene) -> None:
    """A request below its consumer's floor is handled, and removed from the stream."""
    planner = await clean.bus_of("planner")
    await clean.write(f"request.other.{clean.run}")
    handled: list[str] = []

    async def handle(delivery: Delivery) -> bool:
        handled.append(delivery.subject)
        return True

    orphans = Orphans(planner, handle, retention_days=30)
    assert await orphans.sweep() == 0
    found = await orphans._below_floor("REQUESTS", "planner", "request.*.*")
    stored = await (await planner.reader("REQUESTS")).messages(f"request.other.{clean.run}")
    await orphans._recover("REQUESTS", stored[0])
    assert (found, handled) == ({}, [f"request.other.{clean.run}"])
    assert await clean.messages("REQUESTS") == 0
