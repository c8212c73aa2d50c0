"""Promises that a whole session is judged by: what tools have done, and what is left of the work."""

import math
from collections import defaultdict
from collections.abc import Iterator

from runwire.serving.connection import STALL_S
from tests.system.traces import Event, Evidence, Execution, StoredRecord, end_of, events_of, planned_calls, rules_in

_CLOCKS_S = 0.05
"""How far two processes' clocks and a write's way may lie apart on one machine, in seconds."""
_DIRECT_WAIT_S = 0.9
"""A planner waits at least so long for the reply to a direct call."""
_AFTERMATH_S = 10.0
"""For so long after a blow a planner may have a reason not to wait for a reply."""
_ON_ITS_WAY_S = STALL_S + _CLOCKS_S
"""A request that was sent before its run ended may be in the tool's socket; a process that sleeps no longer than this
does not notice."""


def executes_once(evidence: Evidence) -> Iterator[str]:
    """A side effect happens once; an idempotent call does not start again after its outcome or after its run's end."""
    ledger: dict[str, list[Execution]] = defaultdict(list)
    for execution in sorted(evidence.executions, key=lambda e: e.at):
        ledger[execution.key].append(execution)
    known: set[str] = set()
    for run in evidence.runs:
        end = end_of(run)
        tools = {call["call_id"]: call["tool"] for _, call in planned_calls(run)}
        settled = {
            event["call_id"]: (record.at, event)
            for record, event in events_of(run, "log")
            if event["type"] == "observed"
        }
        for call_id, tool in tools.items():
            key = f"{run.run_id}.{call_id}"
            known.add(key)
            begun = ledger.get(key, [])
            if len(begun) > 1 and not evidence.idempotent.get(tool, False):
                yield f"{key}: side effect done {len(begun)} times by {[e.pid for e in begun]}"
            is_timeless = tool in evidence.timeless
            if call_id in settled:
                at, event = settled[call_id]
                may_come_late = is_timeless and event["status"] == "failed"  # It ran out of time, or was given up.
                late = [e for e in begun if e.at > at + _CLOCKS_S and not may_come_late]
                if late:
                    yield f"{key}: begun {late[0].at - at:.3f} s after it was settled"
                if event["status"] == "succeeded" and not begun:
                    yield f"{key}: succeeded without having been executed"
            on_its_way_s = math.inf if is_timeless else _ON_ITS_WAY_S
            if end is not None and begun and (late_s := begun[-1].at - end[0].at) > on_its_way_s:
                yield f"{key}: begun {late_s:.3f} s after its run had ended"
    for key in sorted(set(ledger) - known):
        yield f"{key}: executed but never planned"


def records_starts_for_a_reason(evidence: Evidence) -> Iterator[str]:
    """A call that may be repeated has a `call_started` only if it was direct, and its reply did not come in time.

    The planner that made the direct call may have been stopped. It then records the start after another one has
    announced the call again, as one that is not direct.
    """
    for run in evidence.runs:
        end = end_of(run)
        for record, event in events_of(run, "stream"):
            if event["type"] != "call_started" or (end is not None and end[0].sequence < record.sequence):
                continue  # Once the run has ended, nobody waits for the reply.
            key = f"{run.run_id}.{event['call_id']}"
            before = [
                (announced, call)
                for announced, call in planned_calls(run)
                if call["call_id"] == event["call_id"] and announced.sequence < record.sequence
            ]
            if not before:
                yield f"{key}: started before it was announced"
            elif evidence.idempotent.get(before[-1][1]["tool"], False):
                direct = next((each for each in reversed(before) if each[1].get("direct")), before[-1])
                yield from (f"{key}: {complaint}" for complaint in _needless(evidence, *direct, record))


def _needless(evidence: Evidence, announced: StoredRecord, call: Event, started: StoredRecord) -> Iterator[str]:
    if not call.get("direct"):
        yield "a start was recorded, though it was not direct and may be repeated"
    elif (
        evidence.blows is not None
        and started.at - announced.at < _DIRECT_WAIT_S
        and not any(announced.at - _AFTERMATH_S < at < started.at for at in evidence.blows)
    ):
        yield f"taken for lost {started.at - announced.at:.3f} s after it was announced, though nothing was struck"


def opens_for_others(evidence: Evidence) -> Iterator[str]:
    """An open run whose request was acknowledged is in the index and has its deadline timer."""
    for run in evidence.open_runs:
        if not run.is_in_index:
            yield f"{run.run_id}: its request was acknowledged, and it is not in the index"
        if not run.has_timer:
            yield f"{run.run_id}: its request was acknowledged, and it has no deadline timer"


def leaves_nothing(evidence: Evidence) -> Iterator[str]:
    """The work queues are empty in the end."""
    for queue, count in evidence.left.items():
        if count:
            yield f"{count} messages left in {queue}"


def hangs_nowhere(evidence: Evidence) -> Iterator[str]:
    """Every client sees the end of its run in time."""
    yield from evidence.hung


def dead_letters_nothing(evidence: Evidence) -> Iterator[str]:
    """What services say to each other is understood, also when it is said in the middle of a crash."""
    yield from evidence.dead_letters


def crashes_nowhere(evidence: Evidence) -> Iterator[str]:
    """No process ends but those that are ended."""
    yield from evidence.crashed


RULES = rules_in(globals())
ALWAYS = {name: RULES[name] for name in ("leaves_nothing", "hangs_nowhere", "dead_letters_nothing", "crashes_nowhere")}
"""Those that hold in storms of all kinds."""
