"""What happened in a session, as a table."""

from collections import Counter, defaultdict

from tests.system.traces import TERMINAL, Event, Evidence, RunEvidence, events_of

_TOLD = 5
_AROUND_S, _HUNG_S = 6, 60
_SHOWN = (
    "turn",
    "attempt",
    "cause",
    "by",
    "holder",
    "step",
    "status",
    "call_id",
    "failure",
    "action_seq",
    "seq",
    "text",
    "done",
    "code",
    "reason",
)


def summary(
    rows: list[tuple[str, str]],
    found: Evidence,
    complaints: dict[str, list[str]],
    scripts: dict[str, str],
    history: list[tuple[float, str, str]],
) -> str:
    """What was done, outcomes, repetitions; then every broken promise with the blows around that time.

    `scripts`: run -> what its model was to say.
    """
    rows = [
        ("runs", str(len(found.runs))),
        ("open runs checked", str(len(found.open_runs))),
        *rows,
        *((what, str(count)) for what, count in sorted(_outcomes(found).items())),
        *((what, str(count)) for what, count in sorted(_executions(found).items())),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value:>5}" for name, value in rows]
    broken = [f"BROKEN {rule}: {complaint}" for rule, each in complaints.items() for complaint in each]
    # A hung run shows less than one that broke a promise in time.
    told = [
        f"{run.run_id}: {scripts.get(run.run_id)}\n{_timeline(found, run, history)}"
        for run in sorted(found.runs, key=lambda run: any(run.run_id in hung for hung in found.hung))
        if any(run.run_id in line for line in broken)
    ]
    return "\n".join(["chaos:", *lines, f"  broken promises: {len(broken)}", *broken, *told[:_TOLD]])


def _timeline(found: Evidence, run: RunEvidence, history: list[tuple[float, str, str]]) -> str:
    """What happened to one run and around it, by the clocks of those who did it."""
    moments: list[tuple[float, str]] = []
    for record, event in events_of(run):
        said = " ".join(f"{key}={event[key]}" for key in _SHOWN if event.get(key) not in (None, [], ""))
        moments.append((record.at, f"{record.sequence} {record.kind} {event['type']} {said}"[:240]))
    moments += [
        (each.at, f"executed {each.key} by {each.pid}") for each in found.executions if each.key.startswith(run.run_id)
    ]
    if moments:
        after_s = _HUNG_S if any(run.run_id in hung for hung in found.hung) else _AROUND_S
        first, last = min(moments)[0] - _AROUND_S, max(moments)[0] + after_s
        moments += [(at, f"* {blow} {name}") for at, blow, name in history if first < at < last]
    return "\n".join(f"  {at % 1000:8.3f} {what}" for at, what in sorted(moments))


def _outcomes(found: Evidence) -> Counter[str]:
    counts: Counter[str] = Counter()
    for run in found.runs:
        for _, event in events_of(run):
            kind = event["type"]
            if kind in TERMINAL:
                counts[f"run {kind} {event.get('code') or event.get('reason') or ''}".strip()] += 1
            elif kind == "asked":
                counts[f"asked, cause {event['cause']}"] += 1
            elif kind == "observed":
                failure = event.get("failure") or {}
                counts[f"call {event['status']} {failure.get('code', '')}".strip()] += 1
            elif kind in {"chunk", "call_started"}:
                counts[kind] += 1
            elif kind == "step" and event["node"] in {"plan", "execute"} and (ended := _ended_plan(event)):
                counts[f"plan {ended}"] += 1
            for call in event.get("calls") or []:
                counts["calls announced as direct" if call.get("direct") else "calls announced for CALLS"] += 1
    return counts


def _ended_plan(step: Event) -> str:
    """What became of a plan, where this step says so."""
    if step["node"] == "execute":
        return {"started": "", "succeeded": "carried out"}.get(step["status"], "halted")
    if step["status"] == "invalid":
        return "rejected"
    is_direct = step["status"] == "started" and not step.get("plan") and not step.get("calls")
    return "direct response" if is_direct else ""


def _executions(found: Evidence) -> Counter[str]:
    times = Counter(execution.key for execution in found.executions)
    tools = defaultdict(str)
    for run in found.runs:
        for _, event in events_of(run, "log"):
            for call in event.get("calls", []) if event["type"] in {"step", "called"} else []:
                tools[f"{run.run_id}.{call['call_id']}"] = call["tool"]
    counts: Counter[str] = Counter()
    for key, tool in tools.items():
        counts[f"{tool} executed {min(times[key], 3)} times"] += 1
    return counts
