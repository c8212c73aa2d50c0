"""What listeners see: (a) how long a token takes to an SSE client, (d) what each of many clients costs a gateway."""

import asyncio
import time

import orjson
from nats.aio.msg import Msg

from benchmarks.instant_model import Script, moments
from benchmarks.ratio_tables import Table, alternate, quantile, ratios, spread, together
from benchmarks.system import TENANT, System

_MS = 1e3
_WAIT_S = 120
_RUNS = 40
"""Runs over which the clients of (d) are spread, so that not all of them receive one token at the same moment."""
_PACE_S = 0.5


async def chunks(system: System, rounds: int, tokens: int) -> Table:
    """(a) From a token made by the planner to an SSE client of the gateway."""
    table = Table(
        f"(a) token → SSE client, sync {system.sync}",
        ("runs at once", "tokens/s each", "p50 ms", "p99 ms", "core hop p50 ms", "ratio p50", "ratio p99"),
        "A core hop is one publish to one subscriber in another process, as often as the tokens of all runs.",
    )
    for runs, pace_s in ((1, 0.01), (32, 0.05)):

        async def ours(runs: int = runs, pace_s: float = pace_s) -> list[float]:
            script = Script(tokens=tokens, pace_s=pace_s)
            return await together(_ask_and_listen(system, script, number * pace_s / runs) for number in range(runs))

        async def bare(runs: int = runs, pace_s: float = pace_s) -> list[float]:
            return await system.apart.hops(runs, tokens, pace_s)

        found = await alternate(rounds, {"ours": ours, "bare": bare})
        p50, p99 = (
            {name: [quantile(values, share) * _MS for values in each] for name, each in found.items()}
            for share in (0.5, 0.99)
        )
        table.add(
            str(runs),
            f"{1 / pace_s:.0f}",
            spread(p50["ours"]),
            spread(p99["ours"]),
            spread(p50["bare"], 3),
            spread(ratios(p50["ours"], p50["bare"]), 1),
            spread(ratios(p99["ours"], p99["bare"]), 1),
        )
    return table


async def fan_out(system: System, clients: int, tokens: int) -> Table:
    """(d) Many SSE clients of one gateway process."""
    table = Table(
        f"(d) SSE clients of one gateway, sync {system.sync}",
        (
            "clients",
            "tokens/s",
            "delivered",
            "p50 ms",
            "p99 ms",
            "KiB per client",
            "CPU µs per token",
            "CPU while idle",
        ),
        f"Spread over {_RUNS} runs. The clients live in the measuring process, whose work is part of the latency.",
    )
    # What the first clients cost once is not counted.
    await _follow_all(system, _RUNS, Script(tokens=1, pace_s=_PACE_S, silent_s=1))
    for count in (clients // 10, clients):
        table.add(*await _follow_all(system, count, Script(tokens=tokens, pace_s=_PACE_S, silent_s=2 + clients / 250)))
    return table


async def _follow_all(system: System, clients: int, script: Script) -> tuple[str, ...]:
    memory, runs = system.memory("gateway-1"), await _opened(system, script)
    listening = [asyncio.create_task(_follow(system, runs[number % _RUNS][0])) for number in range(clients)]
    await asyncio.sleep(script.silent_s / 2)
    grown, cpu, began = system.memory("gateway-1") - memory, system.cpu_s("gateway-1"), time.monotonic()
    await asyncio.sleep(script.silent_s / 2 - _PACE_S)
    idle, talk = (system.cpu_s("gateway-1") - cpu) / (time.monotonic() - began), system.cpu_s("gateway-1")
    async with asyncio.timeout(_WAIT_S):
        took = await together(listening)
        await asyncio.gather(*(ending for _, ending in runs))
    return (
        str(clients),
        f"{clients / script.pace_s:.0f}",
        f"{len(took) / (clients * script.tokens):.1%}",
        f"{quantile(took, 0.5) * _MS:.2f}",
        f"{quantile(took, 0.99) * _MS:.1f}",
        f"{grown / 1024 / clients:.0f}",
        f"{(system.cpu_s('gateway-1') - talk) / max(1, len(took)) * 1e6:.0f}",
        f"{idle:.1%}",
    )


async def _opened(system: System, script: Script) -> list[tuple[str, asyncio.Task[str]]]:
    """Ask for the runs, evenly over the time between two tokens; each with what waits for its end."""
    found: dict[str, None] = {}

    async def on_log(message: Msg) -> None:
        found[message.subject.split(".")[2]] = None

    watching = await system.bus.nc.subscribe(f"run.{TENANT}.*.log", cb=on_log)
    await system.bus.barrier()
    endings = []
    for _ in range(_RUNS):
        endings.append(asyncio.create_task(system.ask(script)))
        await asyncio.sleep(script.pace_s / _RUNS)
    async with asyncio.timeout(_WAIT_S):
        while len(found) < _RUNS:  # noqa: ASYNC110, a count that grows on its own
            await asyncio.sleep(0.01)
    await watching.unsubscribe()
    return list(zip(found, endings, strict=True))


async def _ask_and_listen(system: System, script: Script, after_s: float) -> list[float]:
    """Ask over HTTP for a run that streams, and return the seconds that each of its tokens took to arrive."""
    await asyncio.sleep(after_s)
    body = orjson.dumps({"query": script.query(), "tools": [script.tool]})
    head = "POST /v1/runs HTTP/1.1\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n"
    return await _listen(system, f"{head}Content-Length: {len(body)}\r\n".encode(), body)


async def _follow(system: System, run: str) -> list[float]:
    """Follow a run over HTTP to its end; the seconds that each token took to arrive."""
    return await _listen(system, f"GET /v1/runs/{run}/events HTTP/1.1\r\n".encode())


async def _listen(system: System, head: bytes, body: bytes = b"") -> list[float]:
    host, port = system.stack.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head + f"Host: {host}:{port}\r\nConnection: close\r\n\r\n".encode() + body)
    took: list[float] = []
    async for line in reader:
        now = time.monotonic_ns()
        if line.startswith(b'data: {"type":"chunk"'):
            took += [(now - made) / 1e9 for made in moments(orjson.loads(line[6:])["text"])]
        elif line.startswith(b"event: done"):
            writer.close()
            return took
    raise RuntimeError("the event stream ended without an end of the run")
