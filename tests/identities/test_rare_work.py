"""Work that few runs lead to: it has the rights that it needs. The server's log shows a denied one (`clean`)."""

import time

from services.planner.upkeep.deletions import Deletions, sweep
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
        await sweep(planner, ArtifactClient(planner), time.time_ns() // 1_000_000)

        async def is_gone() -> bool:
            return not await traces(clean.operator, deleted.run)

        await wait_until(is_gone, what="the deleted run has left nothing")
        left = await traces(clean.operator, ended.run)
        assert not {subject for subject in left if subject.startswith(("emit.", "$KV.runs."))}
        await store.collector.sweep()
