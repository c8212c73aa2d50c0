"""What happened in a storm: counts, and every broken promise with what happened around it."""

import json
from collections import Counter
from collections.abc import Iterator

from tests.system.traces import TERMINAL, Event, Evidence, RunEvidence, planned_calls

_SHOWN_RUNS = 12
_AROUND_S, _HUNG_S = 6, 60
_LONG = {
    *("type", "request", "limits", "tools", "report_as", "llm_context", "payload", "usage", "spent", "state"),
    "input_schema",
}
"""Fields that are left out."""


def summary(
    counts: Counter[str], found: Evidence, complaints: dict[str, list[str]], history: list[tuple[float, str, str]]
) -> str:
    """What was done and what came of it, then the broken promises. `history`: the blows, as a storm notes them."""
    every = counts + _counts(found)
    width = max(map(len, every))
    broken = [f"BROKEN {rule}: {complaint}" for rule, each in complaints.items() for complaint in each]
    shown = [f"  {name:<{width}}  {count:>5}" for name, count in sorted(every.items())]
    said = [*shown, f"  broken promises: {len(broken)}", *broken]
    return "\n".join([*said, *(_timeline(found, "\n".join(broken), history) if broken else ())])


def _counts(found: Evidence) -> Counter[str]:
    counts = Counter({"runs": len(found.runs), "open runs checked": len(found.open_runs)})
    times = Counter(execution.key for execution in found.executions)
    for run in found.runs:
        counts.update(_outcome(event) for event in run.log)
        tools = {f"{run.run_id}.{call['call_id']}": call["tool"] for _, call in planned_calls(run)}
        counts.update(f"{tool} executed {min(times[key], 3)} times" for key, tool in tools.items())
    for records in found.sessions.values():
        counts.update(f"session: {event['type']}" for record in records for event in record.events)
    return counts


def _outcome(event: Event) -> str:
    kind = event["type"]
    if kind in TERMINAL:
        more = event.get("route") or event.get("code") or event.get("reason") or ""
    elif kind == "step":
        more = f"{event['node']} {event['status']}"
    elif kind == "observed":
        more = f"{event['status']} {(event.get('failure') or {}).get('code', '')}"
    else:
        more = event.get("cause") or ""
    return f"run: {kind} {more}".strip()


def _timeline(found: Evidence, broken: str, history: list[tuple[float, str, str]]) -> Iterator[str]:
    """What happened in the sessions and to the runs that the complaints name, by the clocks of those who did it."""
    logs = {name: records for name, records in found.sessions.items() if name in broken}
    about = broken + json.dumps([record.events for records in logs.values() for record in records])
    # A hung run shows less than one that broke a promise in time.
    named = sorted((run for run in found.runs if run.run_id in about), key=lambda run: _is_hung(found, run))
    shown = named[:_SHOWN_RUNS]
    yield from (f"{run.run_id}: {run.script}" for run in shown if run.script is not None)
    logs |= {run.run_id: run.records for run in shown}
    moments = [
        (each.at, f"{name[-12:]} {each.sequence} {each.kind} {_brief(event)}")
        for name, records in logs.items()
        for each in records
        for event in each.events
    ]
    ids = tuple(run.run_id for run in shown)
    moments += [
        (each.at, f"executed {each.key} by {each.pid}") for each in found.executions if each.key.startswith(ids)
    ]
    if moments:
        after_s = _HUNG_S if any(_is_hung(found, run) for run in shown) else _AROUND_S
        first, last = min(moments)[0] - _AROUND_S, max(moments)[0] + after_s
        moments += [(at, f"* {blow} {name}") for at, blow, name in history if first < at < last]
    yield from (f"{at % 10_000:9.3f} {what}" for at, what in sorted(moments))


def _is_hung(found: Evidence, run: RunEvidence) -> bool:
    return any(run.run_id in hung for hung in found.hung)


def _brief(event: Event) -> str:
    shown = {name: value for name, value in event.items() if name not in _LONG and value not in (None, "", [], {})}
    return f"{event['type']} {json.dumps(shown)}"[:400]
