"""What the log of a session says of its tasks and groups: a second reading, apart from the product's own fold."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from contracts.sessions.tasks import WITH_RESULT
from tests.system.traces import Event, StoredRecord


@dataclass
class TaskHistory:
    """A task: all events about it, each with its place in the session's log."""

    spawned: Event
    events: list[tuple[int, Event]] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """How it ended; empty: it has not."""
        return next((str(event["outcome"]) for _, event in self.events if event["type"] == "task_ended"), "")

    @property
    def cancelled_by(self) -> list[str]:
        return [str(event["by"]) for _, event in self.events if event["type"] == "tasks_cancelled"]

    def count(self, kind: str) -> int:
        """How many events of a type there are."""
        return sum(event["type"] == kind for _, event in self.events)


@dataclass
class GroupHistory:
    """A group: all events that name it, each with its place, and its tasks in the order of their spawns."""

    opened: Event
    events: list[tuple[int, Event]] = field(default_factory=list)
    tasks: dict[str, TaskHistory] = field(default_factory=dict)

    def of(self, kind: str) -> list[Event]:
        """Its events of a type."""
        return [event for _, event in self.events if event["type"] == kind]

    def at(self, kind: str) -> int | None:
        """The place of its first event of a type; None: there is none."""
        return next((place for place, event in self.events if event["type"] == kind), None)

    @property
    def succeeded(self) -> set[str]:
        """Its tasks that have found something."""
        return {name for name, task in self.tasks.items() if task.outcome in WITH_RESULT}

    @property
    def merged(self) -> set[str]:
        """Its tasks whose results later runs are shown."""
        return {task for event in self.of("results_merged") for task in event["tasks"]}

    @property
    def is_gated(self) -> bool:
        """Whether a person decides about its results."""
        return bool(self.opened["merge"] == "HUMAN_GATED")

    @property
    def was_answered(self) -> bool:
        """Whether the run that waited for it has all results."""
        return any(event["is_answered"] and not event["timed_out"] for event in self.of("waiter_released"))


@dataclass
class History:
    """A session: its groups by their ids, the places at which runs ended, and what makes no sense."""

    groups: dict[str, GroupHistory] = field(default_factory=dict)
    ended: dict[str, tuple[int, Event]] = field(default_factory=dict)
    """Run -> the place and event of its end, of runs that had or awaited a turn."""
    queued: list[Event] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    yielded: list[str] = field(default_factory=list)
    refused: list[Event] = field(default_factory=list)
    senseless: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, records: list[StoredRecord]) -> Self:
        history = cls()
        place = 0
        for record in sorted(records, key=lambda each: each.sequence):
            for event in record.events:
                place += 1
                history._take(place, event)
        return history

    def tasks(self) -> Iterator[tuple[str, TaskHistory, GroupHistory]]:
        for group in self.groups.values():
            for name, task in group.tasks.items():
                yield name, task, group

    def find(self, task_id: str) -> tuple[TaskHistory, GroupHistory] | None:
        return next(((task, group) for name, task, group in self.tasks() if name == task_id), None)

    def _take(self, place: int, event: Event) -> None:
        kind = event["type"]
        match kind:
            case "run_ended":
                self.ended.setdefault(event["run"], (place, event))
            case "run_queued":
                self.queued.append(event)
            case "run_begun" | "run_yielded":
                (self.begun if kind == "run_begun" else self.yielded).append(event["run"])
            case "spawn_refused":
                self.refused.append(event)
            case "group_opened" if event["group_id"] not in self.groups:
                self.groups[event["group_id"]] = GroupHistory(event, [(place, event)])
            case "tasks_cancelled":
                for task_id in event["tasks"]:
                    self._about_task(place, event, task_id)
            case "task_ended":
                self._about_task(place, event, event["task_id"])
            case _ if "group_id" in event:
                self._about_group(place, event)

    def _about_task(self, place: int, event: Event, task_id: str) -> None:
        found = self.find(task_id)
        if found is None:
            self.senseless.append(f"{event['type']} of task {task_id}, which was never spawned")
        else:
            found[0].events.append((place, event))

    def _about_group(self, place: int, event: Event) -> None:
        group = self.groups.get(event["group_id"])
        if group is None:
            self.senseless.append(f"{event['type']} of group {event['group_id']}, which was never opened")
            return
        group.events.append((place, event))
        if event["type"] == "task_spawned":
            task = group.tasks.setdefault(event["task_id"], TaskHistory(event))
            task.events.append((place, event))
        for task_id in event.get("tasks", []):
            self._about_task(place, event, task_id)
