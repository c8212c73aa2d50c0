"""Rules about the runs of tasks: each is requested and ends once, spends what was set aside, runs when it is due."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from contracts.runs.payload import NO_ANSWER
from tests.system.tasks.evidence import Tasks, start_of
from tests.system.traces import Event, RunEvidence, end_of, events_of, rules_in

_SPAWN = "task.spawn"
_OF_TASKS = {"subagent": "task", "job": "job"}
_CLOCKS_MS = 250
"""How far a server's timer and a planner's clock may lie apart on one machine."""
_FIRES_WITHIN_MS = 60_000


def runs_each_task_once(storm: Tasks) -> Iterator[str]:
    """Each task has a run that was requested by its parent and started once, and no other run is a task's."""
    runs, spawned = storm.by_id(), set[str]()
    for session, history in storm.histories():
        for task_id, task, _ in history.tasks():
            spawned.add(task_id)
            run = runs.get(task_id)
            request = start_of(run) if run is not None else None
            if run is None:
                yield f"{session}: task {task_id} has no run"
                continue
            starts = sum(event["type"] == "run_started" for event in run.log)
            if starts > 1 or (not starts and task.outcome == "succeeded"):
                yield f"{session}: task {task_id} started {starts} times"
            asked = (request["cause"], request["parent"], request["session_id"]) if request is not None else None
            if asked is not None and asked != (_OF_TASKS[task.spawned["mode"]], task.spawned["run"], session):
                yield f"{session}: task {task_id} was requested as {asked}"
            if task.outcome and (told := _outcome(run)) != task.outcome:
                yield f"{session}: task {task_id} ended as {told}, and its session says {task.outcome}"
    for run_id, run in runs.items():
        request = start_of(run)
        if request is not None and request["cause"] in {"task", "job"} and run_id not in spawned:
            yield f"{run_id}: the run of a task that no session knows"


def _outcome(run: RunEvidence) -> str:
    """How the run of a task ended; a budget that was spent is no failure if there is a text."""
    end = end_of(run)
    if end is None:
        return ""
    event = end[1]
    if event["type"] != "done":
        return "cancelled" if event["type"] == "cancelled" else "failed"
    is_partial = event["reason"] == "budget_exhausted" and event["raw_answer"] != NO_ANSWER
    return "succeeded" if event["reason"] == "answer_complete" else "partial" if is_partial else "failed"


def answers_each_spawn_once(storm: Tasks) -> Iterator[str]:
    """A call that spawns has one outcome. The task exists if it succeeded, and nothing is left if it failed."""
    spawned = Counter(
        (task.spawned["run"], task.spawned["call_id"])
        for _, history in storm.histories()
        for _, task, _ in history.tasks()
    )
    for run in storm.runs:
        end = end_of(run)
        outcomes: dict[str, list[str]] = defaultdict(list)
        for event in run.log:
            if event["type"] == "observed":
                outcomes[event["call_id"]].append(event["status"])
        for call_id in _spawns(run):
            told, count = outcomes[call_id], spawned[run.run_id, call_id]
            if len(told) > 1:
                yield f"{run.run_id}: spawn {call_id} was answered {len(told)} times"
            if end is not None and end[1]["type"] == "done" and end[1]["reason"] == "answer_complete" and not told:
                yield f"{run.run_id}: done, and spawn {call_id} has no answer"
            if told and count != (told[0] == "succeeded"):
                yield f"{run.run_id}: spawn {call_id} {told[0]}, and {count} tasks were spawned"


def asks_before_it_spawns(storm: Tasks) -> Iterator[str]:
    """A spawn that needs a person's consent has it before the task is spawned."""
    tasks = {
        (task.spawned["run"], task.spawned["call_id"]): name
        for _, history in storm.histories()
        for name, task, _ in history.tasks()
    }
    for run in storm.runs:
        policy = next((event.get("tasks") for event in run.of("run_started")), None)
        if policy is None or policy["spawn_requires_confirmation"] is False:
            continue
        pauses = {e["pause_id"]: e["call_id"] for e in run.of("paused") if e["pause_id"]}
        agreed = {pauses.get(e["pause_id"]) for e in run.of("resumed") if _is_consent(e)}
        for call_id in _spawns(run):
            if (run.run_id, call_id) in tasks and call_id not in agreed:
                yield f"{run.run_id}: task {tasks[run.run_id, call_id]} was spawned, and nobody agreed"


def _is_consent(resumed: Event) -> bool:
    answer = resumed.get("input")
    return resumed["decision"] == "approve" or (
        resumed["decision"] == "answer" and isinstance(answer, dict) and answer.get("approve") is True
    )


def _spawns(run: RunEvidence) -> dict[str, Event | None]:
    """The calls of a run that spawn tasks -> what it sets aside for them."""
    return {
        call["call_id"]: call.get("set_aside")
        for event in run.of("step", "called")
        for call in event.get("calls", [])
        if call["tool"] == _SPAWN
    }


def keeps_to_what_was_set_aside(storm: Tasks) -> Iterator[str]:
    """A task spends what its parent has set aside for it, and one call more at most, as each task of its own does."""
    runs = storm.by_id()
    for session, history in storm.histories():
        for task_id, task, _ in history.tasks():
            parent, run = runs.get(task.spawned["run"]), runs.get(task_id)
            if parent is None or run is None or (end := end_of(run)) is None:
                continue
            aside = _spawns(parent).get(task.spawned["call_id"]) or {}
            limits = (_opening(run) or {}).get("limits")
            spent = _counts(next(e["spent"] for _, e in task.events if e["type"] == "task_ended"))
            calls = max(_model_calls(run)) * (1 + len(_spawns(run)))
            for name, slack in (("max_tokens", calls), ("max_tool_calls", 0)):
                limit = aside.get(name)
                if limit is None:
                    continue
                if limits is not None and (limits[name] is None or limits[name] > limit):
                    yield f"{session}: task {task_id} may spend {name} {limits[name]}; {limit} is set aside"
                if spent[name] > limit + slack:
                    yield f"{session}: task {task_id} spent {name} {spent[name]} of {limit}"
                if spent[name] < _counts(end[1]["usage"])[name]:
                    yield f"{session}: task {task_id} spent less by its session than by its run: {name} {spent[name]}"


def never_sets_aside_more_than_is_left(storm: Tasks) -> Iterator[str]:
    """When a run sets something aside, its own spending and all of its tasks' stay within its limits."""
    for run in storm.runs:
        yield from (f"{run.run_id}: {complaint}" for complaint in _overdrawn(run))


def _overdrawn(run: RunEvidence) -> Iterator[str]:
    limits: Event = {}
    own, settled = Counter[str](), dict[str, Counter[str]]()
    aside: dict[str, Counter[str]] = {}
    for event in run.log:
        kind = event["type"]
        if kind in {"run_started", "topped_up"}:
            limits = event["limits"]
        before = +own
        own += _used(event)
        # A spawn that waited for a person has had its part since its step; what others spent meanwhile is no new part.
        is_new = kind in {"step", "called"}
        calls = [c for c in event.get("calls") or [] if is_new and c.get("set_aside") and c["call_id"] not in aside]
        for call in calls:
            aside[call["call_id"]] = Counter({n: v for n, v in call["set_aside"].items() if isinstance(v, int)})
        if kind == "observed" and event["status"] == "failed":
            aside.pop(event["call_id"], None)
        elif kind == "task_settled":
            if event["call_id"] in settled:
                yield f"call {event['call_id']} was settled twice"
            aside.pop(event["call_id"], None)
            settled[event["call_id"]] = _counts(event["spent"])
        for name in ("max_tokens", "max_tool_calls") if calls else ():
            total = before[name] + sum(each[name] for each in (*aside.values(), *settled.values()))
            if limits.get(name) is not None and total > limits[name]:
                yield f"{total} of {name} {limits[name]} are spent and set aside with call {calls[0]['call_id']}"


def gives_back_what_was_not_spent(storm: Tasks) -> Iterator[str]:
    """What a run is told of a task's spending is what its session knows."""
    runs = storm.by_id()
    for session, history in storm.histories():
        for task_id, task, _ in history.tasks():
            spent = next((e["spent"] for _, e in task.events if e["type"] == "task_ended"), None)
            parent = runs.get(task.spawned["run"])
            for event in parent.log if parent is not None else ():
                if event["type"] == "task_settled" and event["task_id"] == task_id and event["spent"] != spent:
                    yield f"{session}: task {task_id} spent {spent}, and its parent received {event['spent']}"


def _used(event: Event) -> Counter[str]:
    calls = event.get("calls") or [] if event["type"] in {"step", "called"} else []
    is_count = event["type"] in {"step", "repaired", "model_failed", "triaged"}
    tokens = _counts(event.get("usage") or {})["max_tokens"] if is_count else 0
    return Counter(max_tokens=tokens, max_tool_calls=sum(call["tool"] != _SPAWN for call in calls))


def _model_calls(run: RunEvidence) -> list[int]:
    """Tokens of each model call of a run that has ended; that of the answer has no event beside the end."""
    known = [_used(event)["max_tokens"] for event in run.log]
    end = end_of(run)
    return [*known, _counts(end[1]["usage"])["max_tokens"] - sum(known)] if end is not None else known


def _counts(usage: Event) -> Counter[str]:
    tokens = usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)
    return Counter(max_tokens=tokens, max_tool_calls=usage.get("tool_calls", 0))


def carries_the_callers_context(storm: Tasks) -> Iterator[str]:
    """Tasks and reports have a `tool_context` if the run has one that spawned them.

    None is stored for nobody, but for reports that wait for a person's decision.
    """
    runs, held = storm.by_id(), 0
    for session, history in storm.histories():
        for group in history.groups.values():
            held += len(group.tasks) if group.is_gated and not group.of("results_rejected") and not group.merged else 0
            above = _has_context(runs.get(group.opened["run"]))
            heirs = [*group.tasks, *(event["report_id"] for event in group.of("reported"))]
            for heir in heirs:
                if None not in {above, has := _has_context(runs.get(heir))} and has != above:
                    yield f"{session}: {heir} has a context: {has}; the run that spawned it: {above}"
    unknown = storm.contexts - runs.keys()
    if len(unknown) > held:
        yield f"contexts are stored for {sorted(unknown)}, which never ran; {held} tasks are held"


def _has_context(run: RunEvidence | None) -> bool | None:
    return (_opening(run) or {}).get("has_tool_context") if run is not None else None


def _opening(run: RunEvidence) -> Event | None:
    """What a run began with; none of one that was refused then, since its tool was gone."""
    for record, event in events_of(run, "log"):
        if event["type"] == "run_started":
            return None if any(other["type"] == "error" for other in record.events) else event
    return None


def fires_each_schedule_once(storm: Tasks) -> Iterator[str]:
    """Each due time has its run, which begins after it and soon, unless it was skipped; no schedule starts others."""
    runs = storm.by_id()
    due = {fire.run: fire for fire in storm.fires}
    schedules = {fire.schedule for fire in storm.fires}
    for fire in storm.fires:
        run = runs.get(fire.run)
        if fire.is_skipped:
            if run is not None:
                yield f"schedule {fire.schedule}: {fire.run} was missed and ran all the same"
            continue
        if run is None or not run.records:
            yield f"schedule {fire.schedule}: no run for {fire.at}"
            continue
        began = min(record.at for record in run.records) * 1000
        if fire.at is not None and not fire.at - _CLOCKS_MS <= began <= fire.at + _FIRES_WITHIN_MS:
            yield f"schedule {fire.schedule}: due at {fire.at}, begun at {began:.0f}"
    for run_id, run in runs.items():
        request = start_of(run)
        if request is not None and (request["schedule_id"] in schedules) and run_id not in due:
            yield f"schedule {request['schedule_id']}: run {run_id} is not due"


def takes_each_delivery_once(storm: Tasks) -> Iterator[str]:
    """A webhook that is delivered twice is answered with one run, which exists."""
    runs, answered = storm.by_id(), defaultdict[str, set[str]](set)
    for delivery, run in storm.deliveries:
        answered[delivery].add(run)
    for delivery, found in answered.items():
        if len(found) > 1 or not found <= runs.keys():
            yield f"delivery {delivery} was answered with {sorted(found)}"


RULES = rules_in(globals())
