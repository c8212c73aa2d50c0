"""What a run waits for, and its status, folded from the facts of its log. Pure.

This is the one home of what a run waits for: its open pauses, and whether anything else is at work. A planner may take
each event as it folds the run; a gateway folds a whole log. The gateway shows the status, the planner's index stores
it.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from contracts.runs import events as facts
from contracts.runs.pauses import OpenPause
from contracts.runs.requests import RunRequested, RunStatus, State, Waits
from contracts.wire.names import own_session_id

MAX_QUERY_CHARACTERS = 200
"""Characters of the question that a status shows."""


def status_of(
    run_id: str,
    request: RunRequested | None,
    end: facts.Terminal | None,
    *,
    state: State,
    waits: Waits | None = None,
    started_at: int | None,
    ended_at: int | None,
) -> RunStatus:
    """Return the status without its payload; times are Unix ms.

    `request`: None when the run was cancelled before its request arrived. `state` and `waits`: of an open run.
    """
    return RunStatus(
        run_id=run_id,
        status=end.type if end else state,
        waits=None if end else waits,
        agent=request.agent if request else "default",
        query=request.query[:MAX_QUERY_CHARACTERS] if request else "",
        session_id=(request.session_id or own_session_id(run_id)) if request else None,
        user_id=request.user_id if request else None,
        cause=request.cause if request else "user",
        parent=request.parent if request else None,
        requested_at=request.requested_at if request else 0,
        started_at=started_at,
        ended_at=ended_at,
        reason=end.reason if isinstance(end, facts.Done) else end.type if end else None,
        code=end.code if isinstance(end, facts.Error) else None,
        usage=end.usage if end else None,
    )


@dataclass(slots=True)
class Waiting:
    """What a run waits for after the events that were taken."""

    held: dict[str | None, facts.Paused] = field(default_factory=dict)
    """The open pauses by id, in the order in which they were opened. The wait for a budget has no id."""
    of_tasks: dict[str, list[OpenPause]] = field(default_factory=dict)
    """By call: the open pauses of the tasks that it waits for, without what only the runs of the tasks hold."""
    is_deciding: bool = False
    """Whether a model is called, or is about to be."""
    calls: set[str] = field(default_factory=set)
    """Calls without an outcome."""
    step_calls: dict[int, list[facts.PlannedCall]] = field(default_factory=dict)
    """All calls of the newest step, by its number."""

    @property
    def pauses(self) -> dict[str, facts.Paused]:
        """The open pauses by id, without the wait for a budget."""
        return {pause_id: paused for pause_id, paused in self.held.items() if pause_id is not None}

    @property
    def is_for_person(self) -> bool:
        """Whether the run waits for people or for a top-up, and no model is called and no tool works meanwhile."""
        paused = {each.call_id for each in self.held.values()} | self.of_tasks.keys()
        return bool(self.held or self.of_tasks) and not self.is_deciding and self.calls <= paused

    def take(self, event: facts.RunEvent) -> None:
        """Add the next event of the log."""
        match event:
            case facts.Paused():
                self.held[event.pause_id] = event
                if event.call_id is None:
                    self.is_deciding = False
                else:
                    self.calls.add(event.call_id)
            case facts.Resumed():
                paused = self.held.pop(event.pause_id, None)
                if any(event.pause_id == each.pause_id for pauses in self.of_tasks.values() for each in pauses):
                    self.of_tasks = without(self.of_tasks, {str(event.pause_id)})
                elif paused is None or paused.call_id is None:
                    self.is_deciding = True  # Without a call, the model is called next.
            case _ if event.type == "run_started" or event.type in facts.TERMINAL:
                self.held, self.of_tasks, self.calls, self.step_calls = {}, {}, set(), {}
                self.is_deciding = event.type == "run_started"
            case _:
                self._take_work(event)

    def _take_work(self, event: facts.RunEvent) -> None:
        """Note whether a model is called, and which calls have no outcome."""
        match event:
            case facts.Asked():
                self.is_deciding = True
                self.held.pop(None, None)
            case facts.Step() | facts.Called():
                self.is_deciding = self.is_deciding and isinstance(event, facts.Called)
                self.calls |= {call.call_id for call in event.calls}
                if isinstance(event, facts.Called):
                    self.step_calls.setdefault(event.step, []).extend(event.calls if event.join else ())
                elif event.status == "started":
                    self.step_calls = {event.step: [*event.calls]}
            case facts.Observed():
                self.calls.discard(event.call_id)
                self.of_tasks.pop(event.call_id, None)
            case facts.TasksPaused():
                self.of_tasks = without({**self.of_tasks, event.call_id: event.pauses})

    def views(self, run_id: str) -> list[OpenPause]:
        """Return the open pauses as people see them, those of tasks too. The wait for a budget is not among them."""
        own = [pause_view(run_id, each, self.step_calls.get(each.step or 0, ())) for each in self.pauses.values()]
        return own + [pause for pauses in self.of_tasks.values() for pause in pauses]


def without(of_tasks: dict[str, list[OpenPause]], closed: Container[str] = ()) -> dict[str, list[OpenPause]]:
    """Return the calls that wait for tasks whose pauses are open, without the pauses that are `closed`."""
    left = {call: [each for each in pauses if each.pause_id not in closed] for call, pauses in of_tasks.items()}
    return {call: pauses for call, pauses in left.items() if pauses}


def waiting_after(events: Iterable[facts.RunEvent]) -> Waiting:
    """Return what a run waits for after all `events` of its log."""
    waiting = Waiting()
    for event in events:
        waiting.take(event)
    return waiting


def pause_view(run_id: str, paused: facts.Paused, step_calls: Iterable[facts.PlannedCall] = ()) -> OpenPause:
    """Return a pause as people see it. `step_calls`: all calls of its step, which hold arguments that it leaves out."""
    arguments = {call.call_id: call.args for call in step_calls}
    plan: list[dict[str, Any]] = [
        {"call_id": call.call_id, "tool": call.tool, "args": call.args} for call in step_calls
    ]
    same = {name: getattr(paused, name) for name in OpenPause.model_fields.keys() & facts.Paused.model_fields.keys()}
    changed = {
        "pause_id": paused.pause_id or "",
        "run_id": run_id,
        "arguments": paused.arguments if paused.arguments is not None else arguments.get(paused.call_id or ""),
        "plan": plan if len(plan) > 1 else [],
        "expires_at": paused.until,
    }
    return OpenPause(**same | changed)
