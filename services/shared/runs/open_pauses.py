"""The open pauses of a run, as people see them, from the facts of its log. Pure."""

from collections.abc import Iterable
from typing import Any

from contracts.runs.events import TERMINAL, Called, Paused, PlannedCall, Resumed, RunEvent, Step
from contracts.runs.pauses import OpenPause


def open_pauses(run_id: str, events: Iterable[RunEvent]) -> list[OpenPause]:
    """Return the open pauses after all `events` of a run's log, in the order in which they were opened.

    A run's wait for a budget has no `pause_id` and is not among them.
    """
    found: dict[str, Paused] = {}
    steps: dict[int, list[PlannedCall]] = {}
    for event in events:
        match event:
            case Step(status="started"):
                steps = {event.step: [*event.calls]}
            case Called(join=True):
                steps.setdefault(event.step, []).extend(event.calls)
            case Paused() if event.pause_id is not None:
                found[event.pause_id] = event
            case Resumed() if event.pause_id is not None:
                found.pop(event.pause_id, None)
            case _ if event.type == "run_started" or event.type in TERMINAL:
                found = {}
    return [view(run_id, paused, steps.get(paused.step or 0, ())) for paused in found.values()]


def view(run_id: str, paused: Paused, step_calls: Iterable[PlannedCall] = ()) -> OpenPause:
    """Return a pause as people see it. `step_calls`: all calls of its step, which hold arguments that it leaves out."""
    arguments = {call.call_id: call.args for call in step_calls}
    plan: list[dict[str, Any]] = [
        {"call_id": call.call_id, "tool": call.tool, "args": call.args} for call in step_calls
    ]
    return OpenPause(
        pause_id=paused.pause_id or "",
        run_id=run_id,
        reason=paused.reason,
        source=paused.source,
        title=paused.title,
        payload=paused.payload,
        input_schema=paused.input_schema,
        call_id=paused.call_id,
        tool=paused.tool,
        arguments=paused.arguments if paused.arguments is not None else arguments.get(paused.call_id or ""),
        step=paused.step,
        plan=plan if len(plan) > 1 else [],
        rule=paused.rule,
        revision=paused.revision,
        token=paused.token,
        expires_at=paused.until,
        default=paused.default,
        default_answer=paused.default_answer,
    )
