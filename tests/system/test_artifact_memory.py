"""What heavy data costs the services that it passes through."""

import asyncio
import contextlib
import hashlib
import sys
from collections.abc import AsyncIterator

import pytest

from tests.support.stack import resident
from tests.system.artifact_tools import noise_of
from tests.system.deployment import Whole

MIB = 1 << 20
FLAT_MIB = 48
"""What a service may grow by, however large the artifact is that passes."""


class Peaks:
    """The largest memory of services while a block runs, sampled, in MiB; and the memory of each before."""

    def __init__(self, whole: Whole, *names: str) -> None:
        self._pids = {name: whole.stack.pid(name) for name in names}
        self.before = {name: resident(pid) for name, pid in self._pids.items()}
        self.most = dict(self.before)

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            for name, pid in self._pids.items():
                self.most[name] = max(self.most[name], resident(pid))
            await asyncio.sleep(0.01)

    def check(self, against: dict[str, float], within: float = FLAT_MIB) -> None:
        """No service has held much more than these figures."""
        sys.stdout.write(f"MiB held: {self.most}, against {against}\n")
        grown = {name: most - against[name] for name, most in self.most.items()}
        assert max(grown.values()) < within, grown


@contextlib.asynccontextmanager
async def watched(whole: Whole, *names: str) -> AsyncIterator[Peaks]:
    """Watch services while something is done."""
    peaks = Peaks(whole, *names)
    task = asyncio.create_task(peaks.watch())
    try:
        yield peaks
    finally:
        task.cancel()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("mib", [64, pytest.param(500, marks=[pytest.mark.chaos, pytest.mark.timeout(600)])])
async def test_memory_stays_flat_from_upload_to_download(whole: Whole, mib: int) -> None:
    """Through the gateway and the store, in and out."""
    block = noise_of(1, mib)

    async def pass_through(count: int) -> None:
        async def body() -> AsyncIterator[bytes]:
            for _ in range(count):
                yield block

        ref = (await whole.http.post("/v1/artifacts", content=body(), timeout=300)).json()
        assert ref["size"] == count * MIB
        digest = hashlib.sha256()
        async with whole.http.stream("GET", f"/v1/artifacts/{ref['artifact_id']}", timeout=300) as answer:
            async for chunk in answer.aiter_bytes():
                digest.update(chunk)
        assert digest.hexdigest() == ref["sha256"]
        assert (await whole.http.delete(f"/v1/artifacts/{ref['artifact_id']}")).status_code == 204

    await pass_through(9)
    async with watched(whole, "gateway-1", "artifact_store-1") as peaks:
        await pass_through(mib)
    peaks.check(peaks.before)
