"""What a session leaves: logs, the ledgers of tools, the records of clients, and open runs as others find them.

Rules judge that. A rule is a public generator of complaints, about all evidence or about one run.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.system.model import Plan, Stage

Event = dict[str, Any]

TERMINAL = frozenset({"done", "error", "cancelled"})


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
    after: str = ""
    """What it took from the result of an earlier call of its plan."""


@dataclass
class RunEvidence:
    """One run as it was asked for, stored, and seen by its client."""

    run_id: str
    cancelled_by_client: bool = False
    may_fail: bool = False
    """Something else stood in the way of `done`, on purpose."""
    script: Plan | None = None
    """What its model says; None: others may say more."""
    requests: dict[Stage, int] = field(default_factory=dict)
    """How many its model has received, by what they ask for."""
    records: list[StoredRecord] = field(default_factory=list)
    seen: list[tuple[str, Event]] = field(default_factory=list)
    """(SSE id or "", event), in the order in which the client got them over all its connections."""
    in_index: str = ""
    """Its status in the index of runs in the end."""
    timers: int = 0
    """How many of its timers are set in the end."""

    @property
    def log(self) -> list[Event]:
        """The events of its log, in order."""
        return [event for _, event in events_of(self, "log")]

    def of(self, *kinds: str) -> list[Event]:
        """The events of its log that have these types."""
        return [event for event in self.log if event["type"] in kinds]


@dataclass
class OpenRun:
    """What others find of an open run whose request is acknowledged."""

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
    dead_letters: list[str] = field(default_factory=list)
    """Messages that were set aside as poison, though nobody sent any."""
    crashed: list[str] = field(default_factory=list)
    """Processes that ended by themselves."""
    open_runs: list[OpenRun] = field(default_factory=list)
    blows: list[float] | None = None
    """When processes were struck, Unix seconds; None: not noted."""
    session_of: dict[str, str] = field(default_factory=dict)
    """Run -> session id, where that matters."""
    sessions: dict[str, list[StoredRecord]] = field(default_factory=dict)
    """Session id -> its log."""
    timeless: frozenset[str] = frozenset()
    """Tools whose requests do not say by when they may begin: what MCP sends waits in the socket of a frozen server."""


def events_of(run: RunEvidence, kind: str | None = None) -> Iterator[tuple[StoredRecord, Event]]:
    """Every event with its record, in the order of storage."""
    for record in sorted(run.records, key=lambda r: r.sequence):
        if kind is None or record.kind == kind:
            for event in record.events:
                yield record, event


def end_of(run: RunEvidence) -> tuple[StoredRecord, Event] | None:
    ends = [(record, event) for record, event in events_of(run, "log") if event["type"] in TERMINAL]
    return ends[0] if ends else None


def planned_calls(run: RunEvidence) -> Iterator[tuple[StoredRecord, Event]]:
    """Every announcement of a call. One that waited is announced again once it may be sent; so is one taken over."""
    for record, event in events_of(run, "log"):
        if event["type"] in {"step", "called"}:
            for call in event.get("calls", []):
                yield record, call


Rule = Callable[[Any], Iterable[str]]
"""Takes the evidence, and yields what is wrong with it."""


def rules_in(module: Mapping[str, Any]) -> dict[str, Rule]:
    """The rules of a module by name, of which it gives `globals()`. One about a run is applied to each run."""
    own = [each for each in module.values() if getattr(each, "__module__", None) == module["__name__"]]
    rules = {each.__name__: each for each in own if inspect.isgeneratorfunction(each) and each.__name__[0] != "_"}
    others = {each.__name__ for each in own if getattr(each, "__annotations__", {}).get("return") == Iterator[str]}
    assert rules.keys() >= {name for name in others if name[0] != "_"}, "a rule yields its complaints"
    of_a_run = {name for name, rule in rules.items() if "run" in inspect.signature(rule).parameters}
    return {name: of_each_run(rule) if name in of_a_run else rule for name, rule in rules.items()}


def of_each_run(rule: Callable[[RunEvidence], Iterable[str]]) -> Rule:
    """A rule about a run as one about all evidence."""

    def applied(found: Evidence) -> Iterator[str]:
        for run in found.runs:
            yield from (f"{run.run_id}: {complaint}" for complaint in rule(run))

    return applied


def judge(found: Evidence, rules: Mapping[str, Rule]) -> dict[str, list[str]]:
    """Apply every rule; return the complaints of those that have any."""
    return {name: complaints for name, rule in rules.items() if (complaints := list(rule(found)))}
