"""The system under measurement: real processes on a nats-server of their own, beside the raw parts on the same server.

One planner, one tool runner, one gateway and one process of tools, as `runwire up` starts them; two cores are not worth
more. The model is `benchmarks.instant_model.InstantModel` inside the planner's process.
"""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nats.aio.msg import Msg

from benchmarks import raw_nats
from benchmarks.instant_model import Script
from contracts.runs.events import RunStarted, Step, Terminal
from contracts.runs.requests import RunRequested, RunStatus
from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from contracts.wire.records import Record
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.messaging.streams import provision
from services.runtime.settings import BusSettings
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack

TENANT = "default"
PLAIN = "plain"
_WAIT_S = 120
_TOOLS = Path(__file__).parent / "tools.py"
_PLAIN_SPEC = {
    "name": PLAIN,
    "description": "Return at once; a plain subscriber without the SDK.",
    "input_schema": {
        "type": "object",
        "properties": {"at": {"type": "integer"}},
        "required": ["at"],
        "additionalProperties": False,
    },
    "output_schema": {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]},
    "idempotent": True,
    "concurrency": 1000,
}


@dataclass
class System:
    """What a benchmark works with."""

    nats: NatsServer
    stack: Stack
    bus: Bus
    together: raw_nats.Bare
    apart: raw_nats.Bare
    sync: str
    _ends: dict[str, asyncio.Future[RunStatus]] = field(default_factory=dict)

    async def start(self) -> "System":
        """Watch the index for the end of runs: one message per run, so that listening costs next to nothing."""
        await self.bus.nc.subscribe(
            subjects.bucket_value(keys.RUNS_BUCKET, keys.run_entry.pattern(tenant=TENANT)), cb=self._on_status
        )
        await self.bus.barrier()
        return self

    async def _on_status(self, message: Msg) -> None:
        run = message.subject[-32:]
        if run in self._ends and b'"ended_at":null' not in message.data:
            self._ends.pop(run).set_result(RunStatus.model_validate_json(message.data))

    async def ask(self, script: Script, **fields: Any) -> str:
        """Ask for a run past the gateway and wait for its end; its id.

        Raises RuntimeError when it does not end in an answer.
        """
        run = new_id()
        ended = self._ends[run] = asyncio.get_running_loop().create_future()
        limits = {"max_steps": 10_000, "deadline_s": 3600}
        now = time.time_ns() // 1_000_000
        request = RunRequested(
            run_id=run,
            tenant=TENANT,
            requested_at=now,
            trace_id=new_id(),
            query=script.query(),
            tools=[script.tool],
            limits=limits,
            **fields,
        )
        await self.bus.publish_surely(subjects.request(TENANT, run), request.model_dump_json().encode(), run)
        status = await asyncio.wait_for(ended, _WAIT_S)
        if status.reason != "answer_complete":
            raise RuntimeError(f"run {run} ended otherwise: {status.model_dump_json()}")
        return run

    async def log(self, run: str) -> list[Record]:
        """The run's facts."""
        reader = await self.bus.reader(subjects.RUNS)
        return [Record.model_validate_json(data) for _, data in await reader.read(subjects.log(TENANT, run))]

    async def steps(self, script: Script) -> list[float]:
        """Seconds of each tool step of one run: from a reply of the model to the moment at which it is asked again."""
        log = await self.log(await self.ask(script))
        moments = [
            event.calls[0].args["at"]
            for record in log
            for event in record.events
            if isinstance(event, Step) and event.calls
        ]
        end = log[-1].events[-1]
        if not isinstance(log[0].events[0], RunStarted) or not isinstance(end, Terminal):
            # The run is at fault, not a type.
            raise RuntimeError("the log does not begin and end as it should")  # noqa: TRY004
        moments.append(int(getattr(end, "raw_answer", "").partition(";")[0]))
        return [(after - before) / 1e9 for before, after in pairwise(moments)]

    async def close(self) -> None:
        """End all connections, while the server is still there."""
        for one in (self.together, self.apart):
            await one.close()
        await self.bus.leave()

    def memory(self, name: str) -> int:
        """Resident bytes of a process."""
        shown = subprocess.run(["ps", "-o", "rss=", "-p", str(self.stack.pid(name))], capture_output=True, check=True)
        return int(shown.stdout) * 1024

    def cpu_s(self, name: str) -> float:
        """Seconds of CPU that a process has used; not a number where the system does not say it exactly."""
        try:
            fields = Path(f"/proc/{self.stack.pid(name)}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return float("nan")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def started(sync: str, *, env: dict[str, str] | None = None) -> AsyncIterator[System]:
    """Start everything with this `sync_interval` ("always", or a time such as "2m", the server's default)."""
    with TemporaryDirectory(prefix="runwire-bench-") as name:
        folder = Path(name)
        server = NatsServer(folder / "nats", sync=sync)
        server.start()
        try:
            with _stack(server.url, folder, env or {}) as stack:
                bus = Bus("bench", BusSettings(nats_url=server.url))
                await bus.connect()
                together, apart = [
                    await raw_nats.Bare(await raw_nats.connect(server.url), family).start()
                    for family in (raw_nats.TOGETHER, raw_nats.APART)
                ]
                system = await System(server, stack, bus, together, apart, sync).start()
                await _until_tools_are_known(system)
                yield system
                await system.close()
        finally:
            server.kill()


def _stack(url: str, folder: Path, env: dict[str, str]) -> Stack:
    tools_file = folder / "tools.json"
    tools_file.write_text(json.dumps([_PLAIN_SPEC]), encoding="utf-8")
    env = {"RUNWIRE_TOOLS_FILE": str(tools_file), "RUNWIRE_MAX_STREAMS_PER_TENANT": "2000", **env}
    stack = Stack(url, folder / "stack", env=env, planners=0, tool_runners=1, gateways=1, tools=_TOOLS, tool_copies=1)
    stack.add("planner-1", "-m", "benchmarks.instant_planner")
    stack.add("plain-1", "-m", "benchmarks.plain_tool", PLAIN, sign=raw_nats.SIGN)
    for part in ("runner", "tool", "speaker"):
        stack.add(f"raw_{part}-1", "-m", "benchmarks.raw_nats", part, sign=raw_nats.SIGN)
    return stack


async def _until_tools_are_known(system: System) -> None:
    """Runs pin the tools that are there when they are opened."""
    async with asyncio.timeout(_WAIT_S):
        for tool in ("instant", "once", PLAIN):
            bucket = Bucket(system.bus, keys.CATALOGUE_BUCKET)
            while not (await bucket.get(keys.live_tool(tool))).data:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        while True:
            try:
                await system.ask(Script(steps=1, tool="once"))
                await system.ask(Script(steps=1, tool=PLAIN))
            except RuntimeError:
                await asyncio.sleep(0.1)
            else:
                return


__all__ = ["PLAIN", "TENANT", "System", "provision", "started"]
