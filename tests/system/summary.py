"""What happened in a session, as a table."""

from collections import Counter, defaultdict

from tests.system.chaos import Session
from tests.system.checker import TERMINAL, Evidence, events_of


def summary(session: Session, found: Evidence, complaints: dict[str, list[str]]) -> str:
    """Blows by kind, outcomes, repetitions; then every broken promise with what befell the processes around that time."""
    rows = [("runs", str(len(found.runs))), ("seed", str(session.storm.seed)), ("event streams opened", str(session.connections))]
    rows += [(blow, str(count)) for blow, count in sorted(session.blows.items())]
    rows += [(what, str(count)) for what, count in sorted(_outcomes(found).items())]
    rows += [(what, str(count)) for what, count in sorted(_executions(found).items())]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value:>5}" for name, value in rows]
    broken = [f"BROKEN {rule}: {complaint}" for rule, each in complaints.items() for complaint in each]
    return "\n".join(["chaos:", *lines, f"  broken promises: {len(broken)}", *broken])


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
            elif kind == "chunk":
                counts["chunks"] += 1
    return counts


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
