"""Groups of background tasks: operations on one session, run by the planner's state machine.

Time is virtual: `complete_after_ms` counts while a run waits for a group, and after the last operation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from contracts.runs.events import PlannedCall
from contracts.sessions.records import SessionRecord
from contracts.sessions.tasks import GroupOpened, SessionGroupDue, TaskPolicy, WaiterAdded
from services.planner.run.calls.tasks import SPAWN, confirmation
from services.planner.run.state.fold import fold as run_fold
from services.planner.run.state.run import Run
from services.planner.sessions.tasks.commands import AnswerCall, CancelTask, RequestReport, StartTask
from services.planner.sessions.tasks.reports import report_request
from services.shared.sessions.fold import fold
from services.shared.sessions.state import group_view, is_held, shown_groups
from services.shared.sessions.task_state import Group, Waiter
from tests.planner.sessions.tasks.session_world import AT, World, control, ended, request, run_id, spawned
from tests.planner.task_world import opening
from tests.support.vector_tokens import assert_matches

SETTINGS = {
    "retain_turn_timeout_s": "retain_timeout_s",
    "default_merge_strategy": "merge_strategy",
    "default_group_report": "group_report",
}
"""Other names of settings in `config`."""
ARGUMENTS = {
    "merge": "merge_strategy",
    "group_merge": "group_merge_strategy",
    "report": "group_report",
    "sealed": "group_sealed",
    "retain": "retain_turn",
    "group": "group",
}


def check(vector: dict[str, Any]) -> None:
    """Run the operations, and compare what the vector names."""
    story = Story(policy_of(vector["input"].get("config") or {}))
    for index, op in enumerate(vector["input"]["ops"]):
        story.index = index
        story.do(op)
    story.complete_scheduled()
    for name, expected in vector["expected"].items():
        compare(getattr(story, name)(), expected, name)


def policy_of(config: dict[str, Any]) -> TaskPolicy:
    known = {SETTINGS.get(name, name): value for name, value in config.items()}
    known = {name: value for name, value in known.items() if name in TaskPolicy.model_fields}
    return TaskPolicy.model_validate({"spawn_requires_confirmation": False, **known})


def compare(actual: Any, expected: Any, what: str) -> None:
    """Compare the fields that the vector names, in each item of a list."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        actual = {name: actual.get(name) for name in expected}
    elif isinstance(expected, list) and isinstance(actual, list) and len(actual) == len(expected):
        pairs = zip(actual, expected, strict=True)
        actual = [_named(have, want) for have, want in pairs]
    assert_matches(actual, expected, what)


def _named(have: Any, want: Any) -> Any:
    if isinstance(want, dict) and isinstance(have, dict):
        return {name: have.get(name) for name in want}
    return [have["op"], have["code"]] if isinstance(want, list) and isinstance(have, dict) else have


@dataclass
class Story:
    """What the operations of a vector lead to."""

    policy: TaskPolicy
    world: World = field(default_factory=World)
    index: int = 0
    turn: str = ""
    names: dict[str, str] = field(default_factory=dict)
    """Id of a task -> its name in the vector."""
    scheduled: dict[str, float] = field(default_factory=dict)
    """Task -> seconds until it succeeds."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Spawns that wait for a person."""
    begun: list[str] = field(default_factory=list)
    requested: dict[str, dict[str, Any]] = field(default_factory=dict)
    refused: list[dict[str, Any]] = field(default_factory=list)
    in_hand: Any = None
    waited_for: str = ""

    def do(self, op: dict[str, Any]) -> None:
        name = op["op"]
        operations: dict[str, Callable[[dict[str, Any]], None]] = {
            "turn": lambda op: self.begin_turn(f"turn {op.get('id', self.index)}"),
            "yield": lambda _op: self.take(ended(self.turn)),
            "spawn": self.spawn,
            "complete": lambda op: self.take(ended(op["task"])),
            "fail": lambda op: self.take(ended(op["task"], "error")),
            "wait_then": self.wait_then,
            "timeout": lambda op: self.take(SessionGroupDue(group_id=self.group_of(op), what="group")),
        }
        if name in operations:
            operations[name](op)
        elif op.get("task") in self.asked:
            self.decide_spawn(op)
        else:
            self.control(op)

    def begin_turn(self, turn: str) -> None:
        """A run of the session begins, or waits for its turn."""
        self.turn = turn
        self.take(request(turn))

    def take(self, cause: Any) -> None:
        """Handle a message, and what follows from it at once."""
        self.world.take(cause)
        for command in self.world.commands:
            match command:
                case StartTask(child):
                    self.begun += [self.names[child.run_id]] if self.names[child.run_id] not in self.begun else []
                case RequestReport(report):
                    found = report_request("default", self.world.session, report)
                    assert found is not None
                    self.requested.setdefault(report.report_id, found.llm_context)
                case AnswerCall(_, finished):
                    waits = isinstance(finished.observation, dict) and "timed_out" in finished.observation
                    self.in_hand = finished.observation if waits else self.in_hand
                    if finished.failure is not None:
                        self.refuse(finished.failure.code)
        for cancelled in [each for each in self.world.commands if isinstance(each, CancelTask)]:
            self.take(ended(self.names[cancelled.task_id], "cancelled"))

    def refuse(self, code: str) -> None:
        self.refused.append({"op": self.index, "index": self.index, "code": code})

    def spawn(self, op: dict[str, Any]) -> None:
        """A run calls for a task; a person is asked first where the policy says so."""
        if not self.turn or not self.world.session.is_open(run_id(self.turn)):
            self.begin_turn(f"turn of {op['task']}")
        task = op["task"]
        args = {ARGUMENTS[name]: value for name, value in op.items() if name in ARGUMENTS and value is not None}
        if task not in self.asked and asks_a_person(self.policy, args):
            self.asked[task] = op
            return
        self.names[run_id(task)] = task
        if {"group_id", "group_id_of"} & op.keys():
            args["group_id"] = self.group_of(op)
        if op.get("complete_after_ms") is not None:
            self.scheduled[task] = op["complete_after_ms"] / 1000
        self.take(spawned(self.turn, task, policy=self.policy, **args))
        known = self.world.session.background.tasks.get(run_id(task))
        if known is not None and op.get("retain"):
            self.wait(known.group_id)

    def decide_spawn(self, op: dict[str, Any]) -> None:
        asked = self.asked[op["task"]]
        if op["op"] not in {"reject", "deny"}:
            self.spawn({**asked, **({"retain": op["retain"]} if "retain" in op else {})})
        del self.asked[op["task"]]

    def control(self, op: dict[str, Any]) -> None:
        """A person's request about a group or a task."""
        action = op["op"].removesuffix("_group").removesuffix("_task")
        is_task = "task" in op and not op["op"].endswith("_group") and action != "seal"
        message = control(action, id_=f"op {self.index} {action}")
        target = {"task_id": run_id(op["task"])} if is_task else {"group_id": self.group_of(op)}
        self.take(message.model_copy(update=target))
        fault = self.world.session.background.answered[message.id]
        if fault is not None:
            self.refuse(fault.code)

    def wait_then(self, op: dict[str, Any]) -> None:
        """A run waits for a group; then another operation follows."""
        group_id = self.group_of(op)
        world, self.waited_for = self.world, group_id
        waits = WaiterAdded(group_id=group_id, run=run_id(self.turn), call_id="wait", until=AT)
        world.session = fold(world.session, world.session.seq + 1, SessionRecord(events=[waits]))
        then = op.get("do") or op.get("then") or op.get("op_then")
        if self.waiting_group(group_id) is not None and world.session.background.groups[group_id].has_ended:
            self.take(control("seal", id_=f"wait {self.index}").model_copy(update={"group_id": group_id}))
        for each in then if isinstance(then, list) else [then] if then else []:
            self.do({"group_id": group_id, **each} if each["op"].endswith("_group") and len(each) == 1 else each)
        self.wait(group_id)

    def wait(self, group_id: str) -> None:
        """Let time pass until the waiting run has its answer."""
        while (waiter := self.waiting_group(group_id)) is not None:
            next_one = min(self.scheduled, key=lambda task: self.scheduled[task], default=None)
            if next_one is None or self.scheduled[next_one] > self.policy.retain_timeout_s:
                assert waiter.state == "waiting"
                self.take(SessionGroupDue(group_id=group_id, what="waiter"))
            else:
                del self.scheduled[next_one]
                self.take(ended(next_one))

    def waiting_group(self, group_id: str) -> Waiter | None:
        """The waiter of a group; None: no run waits for it."""
        group = self.world.session.background.groups.get(group_id)
        return group.waiter if group is not None and group.is_waited_for else None

    def complete_scheduled(self) -> None:
        """Let the remaining time pass."""
        for task in sorted(self.scheduled, key=lambda task: self.scheduled[task]):
            self.take(ended(task))

    def group_of(self, op: dict[str, Any]) -> str:
        """The id of the group that an operation names: by itself, by a task of it, or by its name."""
        background = self.world.session.background
        if (task := op.get("group_id_of") or op.get("task")) and run_id(task) in background.tasks:
            return background.tasks[run_id(task)].group_id
        named = [op.get(field) for field in ("group", "group_id", "name", "group_id_of")]
        for name in (str(each) for each in named if each):
            found = [group.group_id for group in self.groups_made() if group.name == name]
            if found or name in background.groups:
                return found[-1] if found else name
            if run_id(name) in background.tasks:
                return background.tasks[run_id(name)].group_id
        return "f" * 32

    def groups_made(self) -> list[Group]:
        """The groups with a name, in the order of their creation."""
        return shown_groups(self.world.session)

    def groups(self) -> list[dict[str, Any]]:
        opened: list[GroupOpened] = self.world.of("group_opened")
        assert [each.group_id for each in opened if each.name] == [group.group_id for group in self.groups_made()]
        found = []
        for group in self.groups_made():
            view = group_view(self.world.session, group)
            ended = {"completed": view.succeeded, "succeeded": view.succeeded, "failed": view.failed}
            lists = {"tasks": view.tasks, **ended}
            named = {name: [self.names[task] for task in ids] for name, ids in lists.items()}
            found.append({**view.model_dump(mode="json"), **named})
        return found

    def reports(self) -> list[dict[str, Any]]:
        found = []
        for event in self.world.of("reported"):
            shown = self.requested[event.report_id]["background_tasks"]
            digests = [each["result"] for each in shown if each["status"] == "succeeded"]
            failed = [self.names[each] for each in event.failed]
            found.append({"kind": event.kind, "digests": digests, "failed": failed})
        return found

    def context(self) -> list[str]:
        """The tasks whose results later runs are shown."""
        return [self.names[each.task_id] for each in self.world.session.background.results]

    def pending(self) -> int:
        """How many results are held."""
        background = self.world.session.background
        return sum(is_held(task, background.groups[task.group_id]) for task in background.tasks.values())

    def approvals(self) -> list[str]:
        """What waits for a person."""
        waiting = [group for group in self.world.session.background.groups.values() if group.awaits_decision]
        held = [f"group:{each.name}" if each.name else f"task:{self.names[each.group_id]}" for each in waiting]
        return [*held, *(f"spawn:{task}" for task in self.asked)]

    def retained(self) -> Any:
        """What the run that kept its turn has in hand."""
        if self.in_hand is None:
            return None
        results = self.in_hand["results"]
        return {
            **self.in_hand,
            "digests": [each["result"] for each in results if each["status"] == "succeeded" and "result" in each],
            "failed": [self.names[each["task_id"]] for each in results if each["status"] in {"failed", "cancelled"}],
        }

    def waiter(self) -> Any:
        """What became of the run that waited."""
        group = self.world.session.background.groups[self.waited_for]
        assert group.waiter is not None
        woken, timed_out = group.waiter.state == "answered", group.waiter.state == "timed_out"
        words = dict.fromkeys(("woken", "woke", "awake", "released", "returned", "answered", "done"), woken)
        return {**words, "timed_out": timed_out, "status": group.status, **(self.retained() or {})}

    def started(self) -> list[str]:
        return self.begun

    def errors(self) -> list[dict[str, Any]]:
        """The refusals: the number of the operation, and the code."""
        return self.refused


def asks_a_person(policy: TaskPolicy, args: dict[str, Any]) -> bool:
    """Whether a run of an agent with this policy waits for a person before it spawns a task."""
    run = Run()
    run_fold(run, 1, AT, [opening(policy)])
    return confirmation(run, AT, 1, PlannedCall(call_id="1-1", tool=SPAWN, args=args)) is not None
