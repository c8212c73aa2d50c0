"""Judge a finished chaos session by what it left behind: the logs, the tools' ledgers, the clients' records.

Each rule is a function from Evidence to complaints; tests/system/test_checker.py alters records one by one and checks
that the right rule notices (a rule without a mutant is not trusted).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from runwire.serving.stall import STALL_S

Event = dict[str, Any]

TERMINAL = frozenset({"done", "error", "cancelled"})
_CLOCKS_S = 0.05
"""How far two processes' clocks and a write's way may lie apart on one machine, in seconds."""
_DIRECT_WAIT_S = 0.9
"""A planner waits at least so long for the reply to a direct call."""
_AFTERMATH_S = 10.0
"""So long after a blow a planner may have a reason not to wait for a reply."""
_ON_ITS_WAY_S = STALL_S + _CLOCKS_S
"""A request that was sent before its run ended may be in the tool's socket; a process that sleeps no longer than this
does not notice."""


@dataclass
class StoredRecord:
    """One record: where it is stored, and what it says."""

    sequence: int
    kind: str
    at: float
    """The writer's clock, Unix seconds."""
    events: list[Event]


@dataclass
class Execution:
    """One line of a tool's ledger: it began this call."""

    key: str
    pid: int
    at: float


@dataclass
class RunEvidence:
    """One run as it was asked for, stored, and seen by its client."""

    run_id: str
    cancelled_by_client: bool = False
    may_fail: bool = False
    """Something else stood in the way of `done`, on purpose."""
    records: list[StoredRecord] = field(default_factory=list)
    seen: list[tuple[str, Event]] = field(default_factory=list)
    """(SSE id or "", event), in the order in which the client got them over all its connections."""
    in_index: str = ""
    """Its status in the index of runs in the end."""
    timers: int = 0
    """How many of its timers are set in the end."""


@dataclass
class Look:
    """What others found of an open run whose request no planner held any more."""

    run_id: str
    is_in_index: bool
    has_timer: bool


@dataclass
class Evidence:
    """A whole session."""

    runs: list[RunEvidence]
    executions: list[Execution] = field(default_factory=list)
    idempotent: dict[str, bool] = field(default_factory=dict)
    """Tool -> whether its calls may be repeated while they are not settled."""
    left: dict[str, int] = field(default_factory=dict)
    """Messages left in the work queues."""
    hung: list[str] = field(default_factory=list)
    """Runs whose clients waited in vain for the end."""
    buried: list[str] = field(default_factory=list)
    """Messages that were set aside as poison, though nobody sent any."""
    crashed: list[str] = field(default_factory=list)
    """Processes that ended by themselves."""
    looks: list[Look] = field(default_factory=list)
    blows: list[float] | None = None
    """When processes were struck, Unix seconds; None: not noted."""


def events_of(run: RunEvidence, kind: str | None = None) -> Iterator[tuple[StoredRecord, Event]]:
    """Every event with its record, in the order of storage."""
    for record in sorted(run.records, key=lambda r: r.sequence):
        if kind is None or record.kind == kind:
            for event in record.events:
                yield record, event


def _end(run: RunEvidence) -> tuple[StoredRecord, Event] | None:
    ends = [(record, event) for record, event in events_of(run, "log") if event["type"] in TERMINAL]
    return ends[0] if ends else None


def _planned(run: RunEvidence) -> Iterator[tuple[StoredRecord, Event]]:
    """Every announcement of a call. A call of a plan that waited is announced again once it may be sent."""
    for record, event in events_of(run, "log"):
        if event["type"] in {"step", "called"}:
            for call in event.get("calls", []):
                yield record, call


def ends_exactly_once(run: RunEvidence) -> Iterator[str]:
    """Every accepted run has one terminal event, the last on its log."""
    log = list(events_of(run, "log"))
    ends = [event["type"] for _, event in log if event["type"] in TERMINAL]
    if len(ends) != 1:
        yield f"{len(ends)} terminal events: {ends}"
    elif log[-1][1]["type"] not in TERMINAL:
        yield f"{log[-1][1]['type']} stored after the terminal event"


def ends_done(run: RunEvidence) -> Iterator[str]:
    """A run ends `done` with an answer where nothing else stood in the way, and `cancelled` only by its client."""
    end = _end(run)
    if end is None:
        return
    kind = end[1]["type"]
    if kind == "cancelled" and not run.cancelled_by_client:
        yield "cancelled, though nobody asked for it"
    if kind == "error" and not run.may_fail:
        yield f"ended in error {end[1].get('code')}: {end[1].get('error')}"
    if kind == "done" and end[1].get("reason") != "answer_complete" and not run.may_fail:
        yield f"done without an answer: {end[1].get('reason')}"


def settles_each_call_once(run: RunEvidence) -> Iterator[str]:
    """No call has two outcomes, and a run that is `done` has one for each call."""
    observed = Counter(event["call_id"] for _, event in events_of(run, "log") if event["type"] == "observed")
    planned = {call["call_id"] for _, call in _planned(run)}
    for call_id, count in observed.items():
        if count > 1:
            yield f"call {call_id} settled {count} times"
        if call_id not in planned:
            yield f"call {call_id} settled but never planned"
    end = _end(run)
    if (
        end is not None
        and end[1]["type"] == "done"
        and end[1].get("reason") == "answer_complete"
        and set(observed) != planned
    ):
        yield f"done with open calls {sorted(planned - set(observed))}"


def streams_the_answer(run: RunEvidence) -> Iterator[str]:
    """The chunks of the last attempt, joined, are the answer; numbered without gaps; closed by `done`.

    The record of the end may bring the last ones.
    """
    end = _end(run)
    if end is None or end[1]["type"] != "done":
        return
    chunks = [
        event for record, event in events_of(run) if event["type"] == "chunk" and record.sequence <= end[0].sequence
    ]
    if not chunks:
        yield "no chunk of the answer"
        return
    last = max((chunk["action_seq"], chunk["attempt"]) for chunk in chunks)
    part = [chunk for chunk in chunks if (chunk["action_seq"], chunk["attempt"]) == last]
    if "".join(chunk["text"] for chunk in part) != end[1]["raw_answer"]:
        yield "the chunks of the last attempt are not the answer"
    if [chunk["seq"] for chunk in part] != list(range(len(part))):
        yield f"chunk numbers {[chunk['seq'] for chunk in part]}"
    if not part[-1]["done"]:
        yield "the answer's stream is not closed"


def stores_nothing_of_the_dead(run: RunEvidence) -> Iterator[str]:
    """No chunk of an attempt is stored once a later attempt was announced, or the run has ended."""
    newest: dict[int, int] = {}
    ended = False
    for _, event in events_of(run):
        if event["type"] == "asked":
            newest[event["turn"]] = event["attempt"]
        elif event["type"] in TERMINAL:
            ended = True
        elif event["type"] in {"chunk", "thinking"}:
            if ended:
                yield "a chunk stored after the end"
            elif event["attempt"] < newest.get(event["action_seq"], 0):
                announced = newest[event["action_seq"]]
                yield f"a chunk of attempt {event['attempt']} stored after attempt {announced} was announced"


def asks_in_order(run: RunEvidence) -> Iterator[str]:
    """Attempts of a turn count up by one, turns too, and a decision is that of the newest attempt."""
    turn, attempt = 0, 0
    for _, event in events_of(run, "log"):
        if event["type"] == "asked":
            expected = (turn, attempt + 1) if event["turn"] == turn else (turn + 1, 1)
            if (event["turn"], event["attempt"]) != expected:
                yield f"asked turn {event['turn']} attempt {event['attempt']} after turn {turn} attempt {attempt}"
            turn, attempt = event["turn"], event["attempt"]
        elif (
            event["type"] == "step"
            and event["status"] == "started"
            and (event["step"], event["attempt"]) != (turn, attempt)
        ):
            decided = f"turn {event['step']} attempt {event['attempt']}"
            yield f"decision of {decided} while turn {turn} attempt {attempt} was asked"


def retries_when_the_wait_is_over(run: RunEvidence) -> Iterator[str]:
    """What follows a failed request of a model is recorded with it: who is asked, and not before when."""
    failed: Event | None = None
    for record, event in events_of(run, "log"):
        if event["type"] == "model_failed":
            if failed is not None:
                yield f"attempt {event['attempt']} failed without having been asked"
            failed = event
        elif event["type"] == "asked" and failed is not None:
            expected = (failed["turn"], failed["attempt"] + 1, "provider", failed["next_model"])
            if (event["turn"], event["attempt"], event["cause"], event["model"]) != expected:
                yield f"asked turn {event['turn']} attempt {event['attempt']} for {event['cause']} instead of a retry"
            if (early_s := failed["retry_at"] / 1000 - record.at) > 0:
                yield f"attempt {event['attempt']} asked {early_s:.3f} s before the wait was over"
            failed = None


def shows_what_is_stored(run: RunEvidence) -> Iterator[str]:
    """What a client got over all its connections is the log read afterwards: same events, same order, none twice."""
    end = _end(run)
    if end is None:
        return
    stored = [_essence(event) for record, event in events_of(run) if record.sequence <= end[0].sequence]
    seen = [_essence(event) for _, event in run.seen]
    if seen != stored:
        at = next(
            (n for n, (a, b) in enumerate(zip(seen, stored, strict=False)) if a != b), min(len(seen), len(stored))
        )
        yield f"the client got {len(seen)} events of {len(stored)}; they differ from position {at}"


def is_closed_for_others(run: RunEvidence) -> Iterator[str]:
    """Once a run has ended, the index says how, and none of its timers is left."""
    end = _end(run)
    if end is None:
        return
    if run.in_index != end[1]["type"]:
        yield f"ended {end[1]['type']}, and the index says {run.in_index or 'nothing'}"
    if run.timers:
        yield f"{run.timers} timers left"


def _essence(event: Event) -> str:
    parts = (event["type"], *(event.get(k) for k in ("turn", "step", "status", "attempt", "seq", "call_id", "text")))
    return repr(parts)


RULES: dict[str, Callable[[RunEvidence], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        ends_exactly_once,
        ends_done,
        settles_each_call_once,
        streams_the_answer,
        stores_nothing_of_the_dead,
        asks_in_order,
        retries_when_the_wait_is_over,
        shows_what_is_stored,
        is_closed_for_others,
    )
}


def executes_once(evidence: Evidence) -> Iterator[str]:
    """A side effect happens once; an idempotent call does not start again after its outcome or after its run's end."""
    ledger: dict[str, list[Execution]] = defaultdict(list)
    for execution in sorted(evidence.executions, key=lambda e: e.at):
        ledger[execution.key].append(execution)
    known: set[str] = set()
    for run in evidence.runs:
        end = _end(run)
        tools = {call["call_id"]: call["tool"] for _, call in _planned(run)}
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
            if call_id in settled:
                at, event = settled[call_id]
                late = [e for e in begun if e.at > at + _CLOCKS_S]
                if late:
                    yield f"{key}: begun {late[0].at - at:.3f} s after it was settled"
                if event["status"] == "succeeded" and not begun:
                    yield f"{key}: succeeded without having been executed"
            if end is not None and begun and (late_s := begun[-1].at - end[0].at) > _ON_ITS_WAY_S:
                yield f"{key}: begun {late_s:.3f} s after its run had ended"
    for key in sorted(set(ledger) - known):
        yield f"{key}: executed but never planned"


def records_starts_for_a_reason(evidence: Evidence) -> Iterator[str]:
    """A call that may be repeated has a `call_started` only if it was direct, and its reply did not come in time."""
    for run in evidence.runs:
        planned = {call["call_id"]: (record, call) for record, call in _planned(run)}
        for record, event in events_of(run, "stream"):
            if event["type"] != "call_started":
                continue
            key = f"{run.run_id}.{event['call_id']}"
            announced, call = planned.get(event["call_id"], (record, event))
            if announced.sequence >= record.sequence:
                yield f"{key}: started before it was announced"
            elif evidence.idempotent.get(call["tool"], False):
                yield from (f"{key}: {complaint}" for complaint in _needless(evidence, announced, call, record))


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
    for look in evidence.looks:
        if not look.is_in_index:
            yield f"{look.run_id}: its request was acknowledged, and it is not in the index"
        if not look.has_timer:
            yield f"{look.run_id}: its request was acknowledged, and it has no deadline timer"


def leaves_nothing(evidence: Evidence) -> Iterator[str]:
    """The work queues are empty in the end."""
    for queue, count in evidence.left.items():
        if count:
            yield f"{count} messages left in {queue}"


def hangs_nowhere(evidence: Evidence) -> Iterator[str]:
    """Every client sees the end of its run in time."""
    yield from evidence.hung


def buries_nothing(evidence: Evidence) -> Iterator[str]:
    """What services say to each other is understood, also when it is said in the middle of a crash."""
    yield from evidence.buried


def crashes_nowhere(evidence: Evidence) -> Iterator[str]:
    """No process ends but those that are ended."""
    yield from evidence.crashed


SESSION_RULES: dict[str, Callable[[Evidence], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        executes_once,
        records_starts_for_a_reason,
        opens_for_others,
        leaves_nothing,
        hangs_nowhere,
        buries_nothing,
        crashes_nowhere,
    )
}


def judge(evidence: Evidence) -> dict[str, list[str]]:
    """Apply every rule; return the complaints by rule, empty when no promise was broken."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, rule in RULES.items():
        for run in evidence.runs:
            found[name] += [f"{run.run_id}: {complaint}" for complaint in rule(run)]
    for name, session_rule in SESSION_RULES.items():
        found[name] += list(session_rule(evidence))
    return {name: complaints for name, complaints in found.items() if complaints}
