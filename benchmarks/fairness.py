"""(i) What a tenant notices of another one that has as many runs open as it may.

Run: python -m benchmarks.fairness

Tenant B asks a question of one word over `POST /chat` in a loop, alone and while tenant A opens its runs and keeps
them: at a model that says nothing until their deadline, or with calls of a slow tool, which B calls too. Everything is
real but the model, an HTTP server that follows a script. Rest and flood alternate round by round; ratios compare a
flood with the rest before it.
"""

import argparse
import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from benchmarks.ratio_tables import Table, quantile, ratios, spread
from tests.support.model_server import Say, action, answer
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port
from tests.support.stack import Stack

_MS = 1e3
_TOOLS = Path(__file__).parent / "tools.py"
_WIDTH = 20
"""Requests that A has under way at once."""
_WAIT_S = 180


@dataclass(frozen=True)
class Case:
    """Tenant A floods, tenant B asks meanwhile. Words in their questions say whose a run is."""

    name: str
    flood: str
    probe: str
    runs: int
    deadline_s: float


SILENT = Case("a model that says nothing", "say nothing", "one word", 1000, 30)
TOOLS = Case("a slow tool", "call slowly", "call once", 1000, 30)
SCRIPT: dict[str, list[Say]] = {
    "say nothing": [Say(silent=True)],
    "one word": [answer("Yes.")],
    "call slowly": [action("slow", ms=500), answer("Yes.")],
    "call once": [action("slow", ms=0), answer("Yes.")],
}


@dataclass
class Place:
    """A system with two tenants."""

    http: httpx.AsyncClient

    async def probe(self, case: Case, for_s: float, flooding: asyncio.Task[int] | None = None) -> list[float]:
        """Ask as B for so long, and at least until the flood is in; the seconds of each question."""
        took: list[float] = []
        until = time.monotonic() + for_s
        while time.monotonic() < until or (flooding is not None and not flooding.done()):
            began = time.monotonic()
            answer = await self.http.post("/chat", json={"query": case.probe}, headers=_as("b"))
            took.append(time.monotonic() - began)
            if answer.status_code != 200 or answer.json()["payload"]["raw_answer"] != "Yes.":
                raise RuntimeError(f"B was not answered: {answer.text}")
        return took

    async def flood(self, case: Case) -> int:
        """Ask as A for all its runs; how many were accepted."""
        gate = asyncio.Semaphore(_WIDTH)
        body = {"query": case.flood, "limits": {"deadline_s": case.deadline_s}}

        async def one() -> bool:
            async with gate:
                return (await self.http.post("/v1/runs", json=body, headers=_as("a"))).status_code == 202

        return sum(await asyncio.gather(*(one() for _ in range(case.runs))))

    async def calm(self, accepted: int) -> list[str]:
        """Return once so many runs of A have ended: how, newest first."""
        async with asyncio.timeout(_WAIT_S):
            while len(found := [end async for end in self._ends()]) < accepted:  # noqa: ASYNC110, it is asked over HTTP
                await asyncio.sleep(1)
        return found

    async def _ends(self) -> AsyncIterator[str]:
        cursor: dict[str, str] = {}
        while True:
            page = (await self.http.get("/v1/runs", params={"limit": "100", **cursor}, headers=_as("a"))).json()
            for run in page["runs"]:
                if run["ended_at"] is not None:
                    yield run["code"] or run["reason"]
            if not page["next_cursor"]:
                return
            cursor = {"cursor": page["next_cursor"]}


def _as(tenant: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {tenant}"}


@asynccontextmanager
async def place(planners: int, sync: str) -> AsyncIterator[Place]:
    """Start everything, and end it afterwards."""
    with TemporaryDirectory(prefix="runwire-bench-") as name:
        nats, port = NatsServer(Path(name) / "nats", sync=sync), free_port()
        nats.start()
        env = {
            "RUNWIRE_MODEL": "openai/scripted",
            "RUNWIRE_MODEL_API_BASE": f"http://127.0.0.1:{port}/v1",
            "RUNWIRE_API_KEYS": ",".join(
                f"{tenant} {hashlib.sha256(tenant.encode()).hexdigest()}" for tenant in ("a", "b")
            ),
        }
        try:
            stack = Stack(
                nats.url, Path(name) / "stack", env, planners=planners, tool_runners=1, tools=_TOOLS, tool_copies=1
            )
            stack.add("model-1", "-m", "tests.support.model_server", "--port", str(port))
            stack.parts["model-1"].port = port
            with stack:
                async with httpx.AsyncClient(
                    base_url=stack.url, timeout=_WAIT_S, limits=httpx.Limits(max_connections=None)
                ) as http:
                    await _ready(http, port)
                    yield Place(http)
        finally:
            nats.kill()


async def _ready(http: httpx.AsyncClient, port: int) -> None:
    for marker, replies in SCRIPT.items():
        body = {"marker": marker, "replies": [asdict(reply) for reply in replies]}
        (await http.post(f"http://127.0.0.1:{port}/admin/say", json=body)).raise_for_status()
    async with asyncio.timeout(_WAIT_S):
        # The catalogue is another process's: nothing here could set an event.
        while "slow" not in str((await http.get("/v1/tools", headers=_as("b"))).json()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def measure(case: Case, planners: int, sync: str, rounds: int, for_s: float, table: Table) -> None:
    """Add a row."""
    rest, flooded = list[list[float]](), list[list[float]]()
    found: list[str] = []
    accepted = 0
    async with place(planners, sync) as here:
        await here.probe(case, 2)
        for _ in range(rounds):
            rest.append(await here.probe(case, for_s))
            flooding = asyncio.create_task(here.flood(case))
            flooded.append(await here.probe(case, for_s, flooding))
            accepted += await flooding
            found = await here.calm(accepted)
    ends = Counter(found)
    p50, p99 = ([[quantile(took, share) * _MS for took in each] for each in (rest, flooded)] for share in (0.5, 0.99))
    table.add(
        case.name,
        str(planners),
        f"{sum(map(len, rest))}, {sum(map(len, flooded))}",
        spread(p50[0], 0),
        spread(p99[0], 0),
        spread(p50[1], 0),
        spread(p99[1], 0),
        spread(ratios(p50[1], p50[0])),
        spread(ratios(p99[1], p99[0])),
        f"{max(map(max, flooded)) * _MS:.0f}",
        f"{accepted}: " + ", ".join(f"{count} {end}" for end, count in sorted(ends.items())),
    )


COLUMNS = (
    "A has",
    "planners",
    "questions",
    "rest p50 ms",
    "p99",
    "flooded p50 ms",
    "p99",
    "ratio p50",
    "ratio p99",
    "worst ms",
    "A's runs",
)


async def main(cases: list[Case], planners: list[int], sync: str, rounds: int, for_s: float) -> None:
    """Print the table."""
    table = Table(
        f"(i) one tenant beside another that floods, sync {sync}",
        COLUMNS,
        "B's questions over `POST /chat`, one after another.",
    )
    for case in cases:
        for count in planners:
            await measure(case, count, sync, rounds, for_s, table)
    print(table.text(), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fairness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("silent", "tools"))
    parser.add_argument("--planners", type=int, action="append")
    parser.add_argument("--sync", default="always")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    chosen = {"silent": [SILENT], "tools": [TOOLS], None: [SILENT, TOOLS]}[given.only]
    print(f"{os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}.")
    asyncio.run(main(chosen, given.planners or [1, 2], given.sync, given.rounds, given.seconds))
