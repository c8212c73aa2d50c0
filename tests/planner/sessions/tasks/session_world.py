"""A session, perhaps with background tasks, without a server: messages in, events and commands out."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from contracts.runs.payload import Usage
from contracts.runs.requests import RunRequested
from contracts.sessions import tasks
from contracts.sessions.records import KnownSessionEvent, RunEnded, SessionRecord, SessionRunEnded
from services.planner.sessions import decide
from services.planner.sessions.tasks import commands
from services.planner.sessions.tasks.commands import AnswerCall, TaskCommand
from services.shared.sessions.fold import fold
from services.shared.sessions.state import Session
from services.shared.sessions.task_state import Group

POLICY = tasks.TaskPolicy(spawn_requires_confirmation=False)
AT = 1_000_000
TOLD = (SessionRunEnded, tasks.SessionTaskCalled, tasks.SessionTaskControl, tasks.SessionGroupDue)


def run_id(name: str) -> str:
    """The id of a run or task with this short name."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def request(run: str, **fields: Any) -> RunRequested:
    known = {"tenant": "default", "requested_at": AT, "trace_id": "t", "query": f"do {run}", "session_id": "s"}
    return RunRequested.model_validate({"run_id": run_id(run), **known, **fields})


def spawned(
    run: str, task: str, *, policy: tasks.TaskPolicy = POLICY, child: dict[str, Any] | None = None, **args: Any
) -> tasks.SessionTaskCalled:
    """The call of a run for a task, whose call id is the task's name."""
    more = {"cause": "task", "parent": run_id(run), "depth": 1, **(child or {})}
    return tasks.SessionTaskCalled(
        session_id="s",
        run=run_id(run),
        call_id=task,
        action="spawn",
        args={"name": task, **args},
        report_as={"limits": {"max_tokens": 900}, "tools": ["search"]},
        policy=policy,
        at=AT,
        child=request(task, **more),
    )


def called(run: str, action: tasks.TaskAction, call_id: str, **args: Any) -> tasks.SessionTaskCalled:
    return tasks.SessionTaskCalled(
        session_id="s", run=run_id(run), call_id=call_id, action=action, args=args, policy=POLICY, at=AT
    )


def control(
    action: tasks.TaskControlAction, *, task: str | None = None, group: str | None = None, id_: str = ""
) -> Any:
    """A person's request about a task, or about the group whose first task this is."""
    return tasks.SessionTaskControl(
        id=id_ or f"{action} {task or group}",
        action=action,
        task_id=run_id(task) if task else None,
        group_id=run_id(group) if group else None,
        by="key",
    )


def ended(run: str, outcome: str = "done", *, answer: str | None = None, **fields: Any) -> SessionRunEnded:
    """The message of a run that has ended, with the answer `result <name>`."""
    text = (f"result {run}" if answer is None else answer) if outcome == "done" else ""
    known = {"question": f"do {run}", "answer": text, "code": "model_failed" if outcome == "error" else None}
    usage = Usage(model_calls=1, prompt_tokens=10, completion_tokens=5, cost_usd=0.01)
    fact = RunEnded.model_validate({"run": run_id(run), "outcome": outcome, "usage": usage, **known})
    return SessionRunEnded.model_validate(
        {"ended": fact, "reason": "answer_complete" if outcome == "done" else None, **fields}
    )


@dataclass
class World:
    """A session, and the handling of messages to it."""

    session: Session = field(default_factory=Session)
    written: list[KnownSessionEvent] = field(default_factory=list)
    of_session: list[decide.Command] = field(default_factory=list)
    """What follows from the newest message."""
    commands: list[TaskCommand] = field(default_factory=list)
    """What follows from it for tasks."""
    records: list[SessionRecord] = field(default_factory=list)

    def take(self, *causes: RunRequested | decide.Received, by: str = "") -> list[str]:
        """Handle requests or messages; returns the types of the events of the last one."""
        events: decide.Events = []
        for cause in causes:
            owner = by or f"INBOX:{len(self.records) + 1}"
            events = (
                decide.offer(self.session, cause)
                if isinstance(cause, RunRequested)
                else decide.receive(self.session, cause, owner)
            )
            if events:
                record = SessionRecord(by=owner, at=AT + len(self.records), events=list(events))
                self.records.append(record)
                self.session = fold(self.session, self.session.seq + 1, record)
                self.written += events
            self.of_session = decide.commands(self.session, cause)
            self.commands = commands.commands(self.session, cause) if isinstance(cause, TOLD) else []
        return [event.type for event in events]

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.written if event.type == kind]

    def group(self, first: str) -> Group:
        """The group whose first task this is."""
        return self.session.background.groups[run_id(first)]

    def answer(self) -> Any:
        """The answer to the newest call: what the model sees, or the code of the failure."""
        (found,) = [each.finished for each in self.commands if isinstance(each, AnswerCall)]
        return found.failure.code if found.failure is not None else found.observation


def table(text: str, head: str) -> dict[tuple[str, str], str]:
    """The cells of the table in a text that begins with this head, by first cell and column, without backquotes."""
    lines = text[text.index(f"| {head} |") :].replace("`", "").partition("\n\n")[0].splitlines()
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0], state): cell for row in rows for state, cell in zip(heads[1:], row[1:], strict=True)}


def busy(run: str = "r") -> World:
    """A session in which a run has the turn."""
    world = World()
    world.take(request(run))
    return world
