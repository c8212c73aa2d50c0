"""What a storm over background tasks leaves: logs of sessions and of all runs, and what people asked for."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from contracts.wire import subjects
from services.messaging.connection import Bus
from tests.system import evidence
from tests.system.conversations.evidence import Conversations
from tests.system.tasks.history import History
from tests.system.traces import Event, RunEvidence


@dataclass
class Control:
    """A request about a task or a group, as its sender saw it. `status`: of the last answer; 0: there was none."""

    action: str
    target: str
    status: int = 0
    code: str = ""


@dataclass
class Fire:
    """A run that a schedule or a webhook owes: its id, and when it is due, Unix ms; None: at once.

    `is_skipped`: it was missed, and the schedule says that it is then left out.
    """

    schedule: str
    run: str
    at: int | None = None
    is_skipped: bool = False


@dataclass
class Tasks(Conversations):
    """And what was owed. `runs`: every run of the deployment, also those that no caller requested."""

    controls: list[Control] = field(default_factory=list)
    fires: list[Fire] = field(default_factory=list)
    deliveries: list[tuple[str, str]] = field(default_factory=list)
    """Id of a webhook's delivery -> the run that was answered; one for each answer."""
    contexts: set[str] = field(default_factory=set)
    """Runs whose `tool_context` is stored in the end."""
    webhook: tuple[str, str] = ("", "")
    """Its id, and the secret that deliveries are signed with."""

    def histories(self) -> Iterator[tuple[str, History]]:
        """Each session with what its log says of its tasks."""
        for session, records in self.sessions.items():
            yield session, History.of(records)

    def by_id(self) -> dict[str, RunEvidence]:
        return {run.run_id: run for run in self.runs}


def start_of(run: RunEvidence) -> Event | None:
    """The request of a run, as its log has it; None: it ended before it began."""
    return next((event["request"] for event in run.of("run_started", "queued")), None)


async def gather(bus: Bus, found: Tasks, ledger: Path) -> None:
    """Read the logs of all runs and sessions, the ledger and the queues."""
    known = found.by_id()
    found.runs = [known.get(run) or RunEvidence(run, may_fail=True) for run in await _runs_with(bus, subjects.log.all)]
    await evidence.gather(bus, found, ledger)
    for run in found.runs:
        request = start_of(run)
        if request is None or request["cause"] in {"task", "job"}:
            found.session_of[run.run_id] = f"none, {run.run_id}"  # It takes no turn.
        else:
            session = found.session_of[run.run_id] = request["session_id"] or f"run-{run.run_id}"
            if session not in found.sessions:
                found.sessions[session] = await evidence.session_records(bus, session)
    found.contexts = set(await _runs_with(bus, subjects.context.all))


async def _runs_with(bus: Bus, pattern: str) -> list[str]:
    """The runs that the stream of runs has a subject of this pattern for."""
    answer = await bus.api(f"STREAM.INFO.{subjects.RUNS}", {"subjects_filter": pattern})
    return sorted(subject.split(".")[2] for subject in answer["state"].get("subjects") or {})
