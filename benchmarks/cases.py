"""The five questions of `make bench`, each answered beside the raw parts on the same server, in alternating rounds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain

import orjson

from benchmarks.figures import Case, Table, alternate, quantile, ratios, spread
from benchmarks.script import Script, moments
from benchmarks.system import TENANT, System
from contracts import subjects
from contracts.records import Record
from services.planner.run import Run, fold

_MS = 1e3


async def chunks(system: System, rounds: int) -> Table:
    """(a) From a token made by the planner to an SSE client of the gateway."""
    table = Table(
        f"(a) token to SSE client, sync {system.sync}",
        ("runs at once", "token → client p50 ms", "p99 ms", "core hop p50 ms", "ratio p50", "ratio p99"),
        "A raw hop is one core publish to one subscriber in another process, at the same rate.",
    )
    for runs, tokens, pace_s in ((1, 200, 0.01), (32, 60, 0.05)):
        cases: dict[str, Case[list[float]]] = {
            "ours": partial(_listeners, system, runs, Script(tokens=tokens, pace_s=pace_s)),
            "bare": partial(system.apart.hops, runs, tokens, pace_s),
        }
        found = await alternate(rounds, cases)
        p50 = {name: [quantile(values, 0.5) * _MS for values in each] for name, each in found.items()}
        p99 = {name: [quantile(values, 0.99) * _MS for values in each] for name, each in found.items()}
        table.add(
            str(runs),
            spread(p50["ours"]),
            spread(p99["ours"]),
            spread(p50["bare"], 3),
            spread(ratios(p50["ours"], p50["bare"]), 1),
            spread(ratios(p99["ours"], p99["bare"]), 1),
        )
    return table


async def _listeners(system: System, runs: int, script: Script) -> list[float]:
    return list(chain(*await asyncio.gather(*(listen(system, script, number * script.pace_s / runs) for number in range(runs)))))


async def listen(system: System, script: Script, after_s: float = 0.0) -> list[float]:
    """Ask over HTTP for a run that streams, and return the seconds that each of its tokens took to arrive."""
    await asyncio.sleep(after_s)
    host, port = system.stack.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = orjson.dumps({"query": script.query(), "tools": [script.tool]})
    head = f"POST /v1/runs HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    took = await _tokens(reader)
    writer.close()
    return took


async def _tokens(reader: asyncio.StreamReader, arrived: asyncio.Event | None = None) -> list[float]:
    took: list[float] = []
    async for line in reader:
        now = time.monotonic_ns()
        if line.startswith(b'data: {"type":"chunk"'):
            took += [(now - made) / 1e9 for made in moments(orjson.loads(line[6:])["text"])]
        elif line.startswith(b"event: run_started") and arrived is not None:
            arrived.set()
        elif line.startswith(b"event: done"):
            return took
    raise RuntimeError("the event stream ended without an end of the run")


async def steps(system: System, rounds: int) -> Table:
    """(b) One tool step: from the model's reply to its next question, against the bare round trips that it needs."""
    table = Table(
        f"(b) tool step, sync {system.sync}",
        ("steps", "runs at once", "tool", "step p50 ms", "p99 ms", "bare p50 ms", "ratio p50", "ratio p99"),
        "Bare: two guarded appends, a call stored and delivered, a core request, a result stored and delivered, two acknowledgements.",
    )
    for count, width, tool in ((1, 1, "instant"), (20, 1, "instant"), (20, 1, "once"), (200, 1, "instant"), (20, 32, "instant")):
        times = max(1, 40 // (count * width))

        script = Script(steps=count, tool=tool)
        cases: dict[str, Case[list[float]]] = {
            "ours": partial(_often, times, width, partial(system.steps, script)),
            "bare": partial(_often, times, width, partial(system.apart.steps, count)),
        }
        found = await alternate(rounds, cases)
        p50 = {name: [quantile(values, 0.5) * _MS for values in each] for name, each in found.items()}
        p99 = {name: [quantile(values, 0.99) * _MS for values in each] for name, each in found.items()}
        table.add(
            str(count),
            str(width),
            tool,
            spread(p50["ours"]),
            spread(p99["ours"]),
            spread(p50["bare"]),
            spread(ratios(p50["ours"], p50["bare"])),
            spread(ratios(p99["ours"], p99["bare"])),
        )
    return table


async def _often(times: int, width: int, work: Callable[[], Awaitable[list[float]]]) -> list[float]:
    found: list[float] = []
    for _ in range(times):
        found += chain(*await asyncio.gather(*(work() for _ in range(width))))
    return found


async def runs_per_second(system: System, rounds: int, total: int = 200) -> Table:
    """(c) Whole runs per second with a model that answers at once."""
    table = Table(
        f"(c) runs per second, sync {system.sync}",
        ("tool calls", "at once", "runs/s", "bare runs/s", "share of bare"),
        "Bare: the same durable writes and deliveries without any service; one planner, one tool runner, one tool.",
    )
    for calls, width in ((0, 32), (0, 128), (1, 32), (1, 128)):
        cases: dict[str, Case[float]] = {
            "ours": partial(_rate, total, width, partial(system.ask, Script(steps=calls))),
            "bare": partial(_rate, total, width, partial(system.apart.run, calls)),
        }
        found = await alternate(rounds, cases)
        table.add(str(calls), str(width), spread(found["ours"], 0), spread(found["bare"], 0), spread(ratios(found["ours"], found["bare"])))
    return table


async def _rate(total: int, width: int, work: Callable[[], Awaitable[object]]) -> float:
    gate = asyncio.Semaphore(width)

    async def one() -> None:
        async with gate:
            await work()

    began = time.monotonic()
    await asyncio.gather(*(one() for _ in range(total)))
    return total / (time.monotonic() - began)


async def fan_out(system: System, clients: int) -> Table:
    """(d) Many SSE clients of one gateway process on one run."""
    table = Table(
        f"(d) SSE fan-out, sync {system.sync}",
        ("clients", "events/s", "delivered", "token → client p50 ms", "p99 ms", "gateway KiB per client", "gateway CPU µs per event"),
        "All clients follow one run; measured in one client process, whose own work is part of the latency.",
    )
    for count in (clients // 10, clients):
        script = Script(tokens=20, pace_s=0.25 if count <= 100 else 1.0)
        memory = system.memory("gateway-1")
        asking = asyncio.create_task(system.ask(script))
        run = await _newest(system)
        listening = [asyncio.create_task(_follow(system, run)) for _ in range(count)]
        await asyncio.sleep(2)
        grown, cpu = system.memory("gateway-1") - memory, system.cpu_s("gateway-1")
        await asking
        found = await asyncio.wait_for(asyncio.gather(*listening), 60)
        cpu = system.cpu_s("gateway-1") - cpu
        took = [value for values in found for value in values]
        late = took[len(took) // 2 :]
        table.add(
            str(count),
            f"{count / script.pace_s:.0f}",
            f"{len(took) / (count * script.tokens):.1%}",
            f"{quantile(late, 0.5) * _MS:.2f}",
            f"{quantile(late, 0.99) * _MS:.1f}",
            f"{grown / 1024 / count:.0f}",
            f"{cpu / len(took) * 1e6:.0f}",
        )
    return table


async def _newest(system: System) -> str:
    """The run that was asked for last, once its planner has opened it."""
    opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def on_log(message: object) -> None:
        if not opened.done():
            opened.set_result(str(getattr(message, "subject", "")).split(".")[2])

    watching = await system.bus.nc.subscribe(f"run.{TENANT}.*.log", cb=on_log)
    run = await asyncio.wait_for(opened, 10)
    await watching.unsubscribe()
    return run


async def _follow(system: System, run: str) -> list[float]:
    host, port = system.stack.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
    took = await _tokens(reader)
    writer.close()
    return took


async def recovery(system: System, rounds: int) -> Table:
    """(e) What a planner pays that sees a run for the first time, and what a step costs as the run grows."""
    table = Table(
        f"(e) cold read and fold, sync {system.sync}",
        ("steps", "records", "read ms", "parse and fold ms", "together ms", "step p50 ms around step 10", "around half", "at the end"),
        "A run of a thousand steps is read and folded as after a crash; steps of the same run show whether they grow.",
    )
    for count in (10, 100, 1000):
        script = Script(steps=count)
        run = await system.ask(script)
        reads, folds, records = [], [], 0
        for _ in range(rounds):
            began = time.monotonic()
            stored = await (await system.bus.reader(subjects.RUNS)).read(subjects.log(TENANT, run))
            reads.append((time.monotonic() - began) * _MS)
            began, seen, records = time.monotonic(), Run(), len(stored)
            for sequence, data in stored:
                record = Record.model_validate_json(data)
                fold(seen, sequence, record.at, record.events)
            folds.append((time.monotonic() - began) * _MS)
        took = await system.steps(script)
        parts = (took[5:15], took[count // 2 - 25 : count // 2 + 25] if count >= 100 else [], took[-50:] if count >= 100 else [])
        shown = [f"{quantile(part, 0.5) * _MS:.2f}" if part else "-" for part in parts]
        together = [a + b for a, b in zip(reads, folds, strict=True)]
        table.add(str(count), str(records), spread(reads, 1), spread(folds, 1), spread(together, 1), *shown)
    return table
