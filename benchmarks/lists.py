"""What a page of `GET /v1/runs` costs as runs are kept more and more.

`python -m benchmarks.lists [RUNS]`: CPU time of the gateway with its client, beside the same page
with 100 runs kept.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.ratio_tables import Table
from contracts.runs.requests import RunStatus
from contracts.wire import keys
from contracts.wire.names import new_id, unix_ms
from contracts.wire.subjects import DEFAULT_TENANT
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.support.buses import provisioned
from tests.support.gateways import Served, serving
from tests.support.nats_server import NatsServer

FILTERS: tuple[dict[str, str], ...] = ({}, {"status": "error"}, {"status": "running"}, {"user_id": "u7"})
_PAGES = 50


async def keep(bus: Bus, first: int, count: int) -> None:
    """Write the entries of ended runs as planners do: every tenth ended in an error."""
    bucket = Bucket(bus, keys.RUNS_BUCKET)
    for start in range(first, first + count, 500):
        made = [
            RunStatus(
                run_id=new_id(),
                status="done" if number % 10 else "error",
                query="How much is it?",
                user_id=f"u{number % 100}",
                requested_at=unix_ms(),
            )
            for number in range(start, min(start + 500, first + count))
        ]
        written = (bucket.put(keys.run_key(DEFAULT_TENANT, each.requested_at, each.run_id), each) for each in made)
        await asyncio.gather(*written)


async def page_ms(served: Served, wanted: dict[str, str]) -> float:
    """Return the CPU time of one page, in ms; the first one, which reads what is new, is not measured."""
    cursor: str | None = ""
    while cursor is not None:
        answer = await served.http.get("/v1/runs", params={**wanted, **({"cursor": cursor} if cursor else {})})
        cursor = None if answer.json()["runs"] else answer.json()["next_cursor"]
    begin = time.process_time()
    for _ in range(_PAGES):
        await served.http.get("/v1/runs", params=wanted)
    return (time.process_time() - begin) * 1000 / _PAGES


async def measure(sizes: tuple[int, ...]) -> Table:
    """Return what each page costs with so many runs kept."""
    table = Table(
        "Lists",
        ("runs", *("=".join(*wanted.items()) if wanted else "all" for wanted in FILTERS)),
        "CPU ms, and beside the first line",
    )
    with tempfile.TemporaryDirectory() as folder:
        server = NatsServer(Path(folder))
        server.start()
        async with serving(server.url) as served, provisioned(server.url) as bus:
            kept, least = 0, list[float]()
            for size in sizes:
                await keep(bus, kept, size - kept)
                kept = size
                taken = [await page_ms(served, wanted) for wanted in FILTERS]
                least = least or taken
                cells = (f"{ms:.2f} ({ms / first:.2f}x)" for ms, first in zip(taken, least, strict=True))
                table.add(f"{size:,}", *cells)
        server.stop()
    return table


def main() -> None:
    """Print the table."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    print(uvloop.run(measure((100, 3_000, most))).text())


if __name__ == "__main__":
    main()
