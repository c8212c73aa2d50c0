"""(m) What the strategy `planned` saves: runs of n calls in a plan, beside runs of n calls that the model asks for.

Run: python -m benchmarks.plans [--calls 1,5,20] [--rounds 10] [--sync always]

Real processes with a model over HTTP, as in (h). A react run of n calls makes n + 1 requests to the model, a planned
one 2. In each round a run of either kind alternates with n - 1 bare requests to the model server, one after another:
what the requests that the plan leaves out cost at least. The plan's later calls take a field of the earlier result.
And the CPU time of reading, checking and resolving a plan of 20 calls, which needs no system. And the first token of an
answer of the strategy `chat`, beside one of `react`.
"""

import argparse
import asyncio
import statistics
import time
from functools import partial
from typing import Any

import uvloop

from benchmarks.conversations import System, started
from benchmarks.product import processes
from benchmarks.product.script import Script
from benchmarks.ratio_tables import Table, alternate, ratios, spread
from contracts.runs.decisions import Plan, PlanCall
from contracts.tools.messages import ToolSpec
from runwire.plans import check_plan, read_plan, resolve

_MS = 1e3
_CALLS = 20
_GOAL_MS = 5.0
_REPETITIONS = 50
Cost = tuple[float, float]
"""Milliseconds from the request to the end, and milliseconds of CPU of all processes."""


async def runs(system: System, lengths: list[int], rounds: int) -> Table:
    """Runs of either strategy, and bare requests to the model."""
    table = Table(
        "(m) a run of n calls: planned, beside react less the n - 1 requests that the plan leaves out",
        (
            "calls",
            "react, ms",
            "planned, ms",
            "n - 1 bare requests, ms",
            "planned / (react less these)",
            "CPU: planned / react",
        ),
        f"{rounds} rounds; from the request of a client that follows the run to its end. The model answers at once.",
    )
    for calls in lengths:
        found = await alternate(
            rounds,
            {
                "react": partial(_run, system, calls, "react"),
                "planned": partial(_run, system, calls, "planned"),
                "bare": partial(_bare, system, calls - 1),
            },
        )
        (react, react_cpu), (planned, planned_cpu), (bare, _) = (
            zip(*found[name], strict=True) for name in ("react", "planned", "bare")
        )
        less = [took - left_out for took, left_out in zip(react, bare, strict=True)]
        table.add(
            str(calls),
            spread(react, 1),
            spread(planned, 1),
            spread(bare, 1),
            spread(ratios(planned, less)),
            spread(ratios(planned_cpu, react_cpu)),
        )
    return table


async def _run(system: System, calls: int, strategy: str, *, until: bytes = b"event: done") -> Cost:
    """Run a plan of so many calls, or ask for them one by one, and return what it cost until an event.

    Raises RuntimeError.
    """
    body = {"query": Script(calls=calls, tokens=8).question(), "strategy": strategy, "limits": {"max_steps": calls + 2}}
    before, began = sum(processes.cpu_s(system.pids).values()), time.monotonic()
    async with system.http.post(
        f"{system.stack.url}/v1/runs", json=body, headers={"Accept": "text/event-stream"}
    ) as reply:
        reply.raise_for_status()
        observed, cost = 0, None
        async for line in reply.content:
            observed += line.startswith(b"event: observed")
            if line.startswith(until) and cost is None:
                took = (time.monotonic() - began) * _MS
                cost = took, (sum(processes.cpu_s(system.pids).values()) - before) * _MS
            if line.startswith(b"event: done") and cost is not None:
                if observed != calls:
                    raise RuntimeError(f"{observed} calls were made, not {calls}")
                return cost
    raise RuntimeError("the run ended otherwise")


async def first_tokens(system: System, rounds: int) -> Table:
    """How long a listener waits for the first chunk of an answer."""
    table = Table(
        "(m) the first token: chat, beside react",
        ("react, ms", "chat, ms", "chat / react"),
        f"{rounds} rounds; from the request of a client that follows the run to the first chunk, without any call.",
    )
    kinds = ("react", "chat")
    found = await alternate(rounds, {kind: partial(_run, system, 0, kind, until=b"event: chunk") for kind in kinds})
    react, chat = ([took for took, _ in found[kind]] for kind in kinds)
    table.add(spread(react, 1), spread(chat, 1), spread(ratios(chat, react)))
    return table


async def _bare(system: System, requests: int) -> Cost:
    """Send requests to the model server itself, one after another, and read each reply to its end."""
    message = {"role": "user", "content": f"<question>{Script(calls=1).question()}"}
    began = time.monotonic()
    for _ in range(requests):
        async with system.http.post(f"{system.model_url}/chat/completions", json={"messages": [message]}) as reply:
            await reply.read()
    return (time.monotonic() - began) * _MS, 0.0


def pure() -> Table:
    """The CPU time of the rules for one plan."""
    value, tools = _plan()
    result = {"id": "r-1", "parts": [{"title": "AI", "score": 0.5}], "text": "x" * 2000}
    table = Table(
        f"(m) a plan of {_CALLS} calls, without a system: CPU, ms",
        ("", "ms"),
        f"The smallest of {_REPETITIONS}, the median and the largest; to aim at: below {_GOAL_MS:g}.",
    )
    taken: dict[str, list[float]] = {"read and check": [], "resolve all calls": [], "together": []}
    for _ in range(_REPETITIONS):
        began = time.process_time_ns()
        plan = read_plan(value)
        if not isinstance(plan, Plan) or not check_plan(plan.calls, tools).valid:
            raise RuntimeError("the plan is not valid")
        checked = time.process_time_ns()
        for index, call in enumerate(plan.calls):
            resolve(call.arguments, [result] * index)
        ended = time.process_time_ns()
        for name, nanoseconds in zip(taken, (checked - began, ended - checked, ended - began), strict=True):
            taken[name].append(nanoseconds / 1e6)
    for name, milliseconds in taken.items():
        low, middle, high = min(milliseconds), statistics.median_high(milliseconds), max(milliseconds)
        table.add(name, f"{low:.2f}, {middle:.2f}, {high:.2f}")
    return table


def _plan() -> tuple[dict[str, Any], dict[str, ToolSpec]]:
    """A plan whose calls take three fields of the result before, and its tools."""
    part = {"type": "object", "properties": {"title": {"type": "string"}, "score": {"type": "number"}}}
    output = {
        "$defs": {"Part": part},
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            "text": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    }
    properties = {name: {"type": "string"} for name in ("id", "title", "text")} | {"score": {"type": "number"}}
    tools = {
        f"tool_{number}": ToolSpec(
            name=f"tool_{number}",
            input_schema={"type": "object", "properties": {**properties, f"own_{number}": {}}},
            output_schema={**output, "title": f"Result {number}"},
        )
        for number in range(_CALLS)
    }
    calls = [
        PlanCall(
            tool_name=f"tool_{number}",
            arguments={}
            if number == 0
            else {
                "id": f"${number - 1}.output.id",
                "title": f"${number - 1}.output.parts.0.title",
                "score": f"${number - 1}.output.parts.0.score",
                "text": f"${number - 1}.output.text",
            },
        )
        for number in range(_CALLS)
    ]
    return {"type": "tool_calls", "reasoning": "", "calls": [call.model_dump() for call in calls]}, tools


async def main(lengths: list[int], rounds: int, sync: str) -> None:
    """Print the tables."""
    print(pure().text(), flush=True)
    async with started(sync) as system:
        for strategy in ("react", "planned"):
            await _run(system, 2, strategy)
        print((await runs(system, lengths, rounds)).text())
        print((await first_tokens(system, 2 * rounds)).text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plans", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", default="1,5,20")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sync", choices=("always", "default"), default="always")
    arguments = parser.parse_args()
    numbers = [int(number) for number in arguments.calls.split(",")]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(numbers, arguments.rounds, {"always": "always", "default": "2m"}[arguments.sync]))
