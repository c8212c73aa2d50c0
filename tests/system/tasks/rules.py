"""Rules of storms over background tasks: those about groups and reports."""

from collections import Counter
from collections.abc import Iterator

from contracts.sessions.tasks import WITH_RESULT
from tests.system.conversations import rules as of_conversations
from tests.system.tasks import run_rules
from tests.system.tasks.evidence import Tasks, start_of
from tests.system.tasks.history import GroupHistory
from tests.system.traces import rules_in

_ONCE_A_GROUP = ("group_opened", "group_sealed", "group_ended", "results_rejected")
_ONCE_A_TASK = ("task_spawned", "task_ended")
_ACCEPTED = 200
_BY_DECISION = {"approve": "apply", "reject": "reject"}


def changes_each_state_once(storm: Tasks) -> Iterator[str]:
    """A group is opened, sealed and ended once, in this order; a task is spawned and ended once, before its group."""
    for session, history in storm.histories():
        yield from (f"{session}: {complaint}" for complaint in history.senseless)
        for group_id, group in history.groups.items():
            yield from (f"{session}: group {group_id}: {complaint}" for complaint in _wrong_changes(group))


def _wrong_changes(group: GroupHistory) -> Iterator[str]:
    counts = Counter(event["type"] for _, event in group.events)
    yield from (f"{counts[kind]} times {kind}" for kind in _ONCE_A_GROUP if counts[kind] > 1)
    sealed, ended = group.at("group_sealed"), group.at("group_ended")
    if ended is None or sealed is None or ended < sealed:
        yield f"sealed at {sealed}, ended at {ended}"
    for task_id, task in group.tasks.items():
        yield from (
            f"task {task_id}: {count} times {kind}" for kind in _ONCE_A_TASK if (count := task.count(kind)) != 1
        )
        if task.count("results_merged") > 1:
            yield f"task {task_id}: merged {task.count('results_merged')} times"
        at = {event["type"]: place for place, event in task.events}
        if group.opened["name"] and sealed is not None and at["task_spawned"] > sealed:
            yield f"task {task_id} joined after the group was sealed"
        if ended is not None and at.get("task_ended", ended) > ended:
            yield f"task {task_id} ended after its group"
    if ended is not None:
        status = "complete" if group.succeeded else "failed"
        if group.of("group_ended")[0]["status"] != status:
            yield f"ended as {group.of('group_ended')[0]['status']}, and {len(group.succeeded)} tasks have succeeded"


def decides_each_group_once(storm: Tasks) -> Iterator[str]:
    """Held results wait for a person. Of all decisions one takes effect, and its sender is answered so."""
    accepted: dict[str, set[str]] = {}
    unsure: dict[str, set[str]] = {}
    for control in storm.controls:
        if control.action in {"apply", "reject"}:
            known = accepted if control.status == _ACCEPTED else unsure
            known.setdefault(control.target, set()).add(control.action)
    held = _held_results(storm)
    for decision in storm.decisions:  # Somebody else may have decided about the group itself meanwhile.
        if decision.pause in held:
            unsure.setdefault(held[decision.pause], set()).add(_BY_DECISION[decision.decision])
    for session, history in storm.histories():
        for group_id, group in history.groups.items():
            names = {group_id, *group.tasks}
            yes = {action for name in names for action in accepted.get(name, ())}
            maybe = yes | {action for name in names for action in unsure.get(name, ())}
            done = {"apply"} if group.merged and group.is_gated else set()
            done |= {"reject"} if group.of("results_rejected") else set()
            if len(done) > 1 or not done <= maybe or not yes <= done:
                yield f"{session}: group {group_id}: decided {sorted(done)}, answered with 200: {sorted(yes)}"
            if done and group.is_gated and (ended := group.at("group_ended")) is not None:
                decided = group.at("results_merged") or group.at("results_rejected") or ended
                if decided < ended:
                    yield f"{session}: group {group_id}: decided before it ended"


def _held_results(storm: Tasks) -> dict[str, str]:
    """Return the pauses in which runs that wait for held results ask about them, each with its group.

    A task without a group is one of its own, with its id.
    """
    return {
        pause["pause_id"]: pause["arguments"].get("group_id") or pause["arguments"]["task_id"]
        for run in storm.runs
        for event in run.of("tasks_paused")
        for pause in event["pauses"]
        if pause["run_id"] == run.run_id
    }


def reports_each_due_group_once(storm: Tasks) -> Iterator[str]:
    """What is due is reported once: by group, or by task; nothing else is."""
    for session, history in storm.histories():
        seen = Counter(event["report_id"] for group in history.groups.values() for event in group.of("reported"))
        yield from (
            f"{session}: report {report} was recorded {count} times" for report, count in seen.items() if count > 1
        )
        for group_id, group in history.groups.items():
            reports = [frozenset([*event["tasks"], *event["failed"]]) for event in group.of("reported")]
            due, may = _due(group)
            missing, needless = set(due) - set(reports), set(reports) - set(due) - set(may)
            named = Counter(task for report in reports for task in report)
            if missing:
                yield f"{session}: group {group_id}: no report on {_words(missing)}"
            if needless:
                yield f"{session}: group {group_id}: a report on {_words(needless)} that is not due"
            yield from (f"{session}: task {task} is in {count} reports" for task, count in named.items() if count > 1)


def _words(reports: set[frozenset[str]]) -> str:
    return "; ".join(", ".join(sorted(report)) for report in reports)


def _due(group: GroupHistory) -> tuple[list[frozenset[str]], list[frozenset[str]]]:
    """Return the reports that must be there, as sets of tasks, and those that may be."""
    opened, single = group.opened, [frozenset([task]) for task in group.tasks]
    is_single = not opened["name"] or opened["report"] == "any"
    wanted = single if is_single else [frozenset(group.tasks)]
    if opened["report"] == "none" or group.at("group_ended") is None:
        return [], []
    if group.is_gated and group.succeeded and not group.merged:
        return [], []
    if _is_muted(group) or group.was_answered:
        return [], wanted if is_single and opened["name"] else []
    return wanted, []


def _is_muted(group: GroupHistory) -> bool:
    """Whether the run that made the group took its tasks along, or its one task was cancelled by request."""
    taken = any(
        "run" in task.cancelled_by and task.spawned["run"] == group.opened["run"] for task in group.tasks.values()
    )
    asked = any(set(task.cancelled_by) - {"run", "timer"} for task in group.tasks.values())
    return taken or (asked and not group.opened["name"])


def begins_each_report_once(storm: Tasks) -> Iterator[str]:
    """The run of a report joins its session once, and has a log; there are no other reports.

    It begins at most once, and once more each time after it has yielded its turn.
    """
    runs = storm.by_id()
    recorded: set[str] = set()
    for session, history in storm.histories():
        queued = Counter(event["run"] for event in history.queued)
        begun = Counter(history.begun)
        for group in history.groups.values():
            for event in group.of("reported"):
                report = event["report_id"]
                recorded.add(report)
                if report not in runs:
                    yield f"{session}: report {report} was recorded, and there is no such run"
                if queued[report] != 1 or begun[report] > 1 + history.yielded.count(report):
                    yield f"{session}: report {report} joined {queued[report]} times and began {begun[report]} times"
                elif not begun[report] and history.ended.get(report, (0, {"outcome": ""}))[1]["outcome"] != "cancelled":
                    yield f"{session}: report {report} never began"
    for run_id, run in runs.items():
        request = start_of(run)
        if request is not None and request["cause"] == "report" and run_id not in recorded:
            yield f"{run_id}: a run that reports, and no session has recorded it"


def loses_no_result(storm: Tasks) -> Iterator[str]:
    """What a task found is merged, rejected or held, and the report or the answer to the waiting run names it."""
    runs = storm.by_id()
    for session, history in storm.histories():
        for task_id, task, group in history.tasks():
            ended = next((event for _, event in task.events if event["type"] == "task_ended"), None)
            if task.outcome not in WITH_RESULT or ended is None:
                continue
            is_held = group.is_gated and not group.merged
            if task_id not in group.merged and not is_held:
                yield f"{session}: task {task_id} has succeeded, and its result is nowhere"
            for event in group.of("reported"):
                request = start_of(runs[event["report_id"]]) if event["report_id"] in runs else None
                if (
                    task_id in event["tasks"]
                    and request is not None
                    and ended["digest"] not in str(request["llm_context"])
                ):
                    yield f"{session}: task {task_id}: its report {event['report_id']} does not bring the result"
            for event in group.of("waiter_released"):
                answer = _answer(storm, event["run"], event["call_id"])
                if not event["timed_out"] and answer is not None and task_id not in answer:
                    yield f"{session}: task {task_id}: the run that waited has an answer without it"


def _answer(storm: Tasks, run_id: str, call_id: str) -> str | None:
    """The answer to a call, as text; None: its run ended first, or the call failed."""
    run = storm.by_id().get(run_id)
    for event in run.log if run is not None else ():
        if event["type"] == "observed" and event["call_id"] == call_id and event["status"] == "succeeded":
            return str(event["observation"])
    return None


def releases_each_waiter_once(storm: Tasks) -> Iterator[str]:
    """A run that waits for a group is released once, and its call has one answer, or the run has ended."""
    for session, history in storm.histories():
        for group_id, group in history.groups.items():
            added = Counter((event["run"], event["call_id"]) for event in group.of("waiter_added"))
            released = Counter((event["run"], event["call_id"]) for event in group.of("waiter_released"))
            for run, call in added.keys() | released.keys():
                if (added[run, call], released[run, call]) != (1, 1):
                    times = f"waits {added[run, call]} times, and was released {released[run, call]} times"
                    yield f"{session}: group {group_id}: call {call} of {run} {times}"


def ends_tasks_of_cancelled_runs(storm: Tasks) -> Iterator[str]:
    """The tasks of a run that was cancelled are cancelled, unless they ended before."""
    for session, history in storm.histories():
        for task_id, task, _ in history.tasks():
            by = task.spawned["run"]
            parent = history.find(by)
            end = history.ended.get(by)
            at = end[0] if end is not None and end[1]["outcome"] == "cancelled" else None
            if parent is not None and parent[0].outcome == "cancelled":
                at = next(place for place, event in parent[0].events if event["type"] == "task_ended")
            ended = next((place for place, event in task.events if event["type"] == "task_ended"), None)
            if at is not None and not task.cancelled_by and (ended is None or ended > at):
                yield f"{session}: task {task_id} goes on, though {by} was cancelled"


OWN = rules_in(globals()) | run_rules.RULES
RULES = of_conversations.RULES | OWN
