"""What is known of one run, as one document, and that document for people."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from rich.markup import escape

from runwire import events
from runwire.cli.printing import OUT, marked, one_line, print_fields, program, size_text, time_text
from runwire.cli.views import steps
from runwire.cli.views.artifacts import artifacts_of
from runwire.cli.views.pauses import name_of
from runwire.client import Client

_QUIET_S = 1.0
"""A run that goes on is shown as it was when no event came for so long."""
_COLOURS = {"done": "green", "error": "red", "cancelled": "yellow"}
_OF_PLANS = {"plan", "errors", "errors_left_out", "statuses", "halt_reason"}
"""What a step of the strategy `planned` adds to its entry."""
_OUTCOME = {"status", "latency_ms", "observation", "failure"}


async def report_of(client: Client, run_id: str) -> dict[str, Any]:
    """Return the fields of `RunStatus`, the whole `query`, `model`, `steps`, `error` and `artifacts`.

    Raises RunwireError.
    """
    status = await client.status(run_id, artifacts="refs")
    report = {**status.model_dump(mode="json"), "model": None, "steps": [], "error": None, "artifacts": []}
    found: dict[tuple[int, str], dict[str, Any]] = {}
    calls: dict[str, dict[str, Any]] = {}
    node = ""
    async with aclosing(_known_events(client, run_id, has_ended=status.ended_at is not None)) as known:
        async for event in known:
            match event:
                case events.RunStarted():
                    report |= {"query": event.request.query, "model": event.model or None}
                case events.Step() | events.Called():
                    # A plan and its execution are steps of one number.
                    node = event.node if isinstance(event, events.Step) else node
                    step = found.setdefault((event.step, node), {"step": event.step, "calls": []})
                    if isinstance(event, events.Step):
                        step |= event.model_dump(mode="json", include={*_OF_PLANS, "node", "status", "latency_ms"})
                    for planned in event.calls:
                        if planned.call_id not in calls:
                            calls[planned.call_id] = {}
                            step["calls"].append(calls[planned.call_id])
                        began = {"tool": planned.tool, "args": planned.args, "status": "started"}
                        calls[planned.call_id].update(began, latency_ms=None, observation=None, failure=None)
                case events.Observed() if event.call_id in calls:
                    calls[event.call_id] |= event.model_dump(mode="json", include=_OUTCOME)
                case events.Error():
                    report["error"] = event.error
                case _:
                    pass
    report["steps"] = sorted(found.values(), key=lambda step: step["step"])
    if status.payload is not None:
        report["artifacts"] = [artifact.described() for artifact in await artifacts_of(client, run_id)]
    return report


async def _known_events(client: Client, run_id: str, *, has_ended: bool) -> AsyncGenerator[events.RunEvent, None]:
    """Yield the events up to now."""
    following = aiter(client.follow(run_id, artifacts="refs"))
    while True:
        try:
            async with asyncio.timeout(None if has_ended else _QUIET_S):
                event = await anext(following)
        except (StopAsyncIteration, TimeoutError):
            return
        yield event


def print_report(report: dict[str, Any]) -> None:
    """Print a report for people."""
    state, because = report["status"], report["code"] or report["reason"] or report["paused"]
    colour, took = _COLOURS.get(state, "cyan"), ""
    if report["ended_at"] is not None:
        took = f" · ended after {(report['ended_at'] - report['requested_at']) / 1000:.1f} s"
    print_fields([("run", report["run_id"])], 9)
    why = f" · {escape(because)}" if because and because != state else ""
    OUT.print(f"[bold]status[/bold]    [{colour}]{state}[/{colour}]{why}")
    agent = f"{report['agent']} · model {report['model'] or 'not chosen'}"
    asked = time_text(report["requested_at"]) + took
    print_fields([("asked", asked), ("agent", agent), ("question", report["query"])], 9)
    planned: list[dict[str, Any]] = []
    for step in report["steps"]:
        planned = step["plan"]["calls"] if step.get("plan") else planned
        _print_step(step, planned)
    payload = report["payload"] or {}
    if report["error"]:
        OUT.print(f"\n[bold red]error[/bold red] {marked(report['error'])}")
    if payload.get("raw_answer"):
        OUT.print(f"\n[bold]answer[/bold]\n{marked(payload['raw_answer'])}")
    for line in steps.remarks(payload):
        OUT.print(line)
    _print_artifacts(report["artifacts"])
    for warning in payload.get("warnings") or []:
        OUT.print(f"[yellow]! {marked(one_line(warning))}[/yellow]")
    for pause in report["pauses"]:
        name = f"{report['run_id']}/{name_of(pause['pause_id'], pause['revision'])}"
        OUT.print(f"[yellow]{steps.waiting_text(pause)}[/yellow] [dim]{name}[/dim]")
    if report["usage"]:
        OUT.print(f"\n[bold]cost[/bold]      {_costs(report['usage'])}")
    if report["ended_at"] is None:
        OUT.print(f"[dim]{program()} tail {report['run_id']} follows it[/dim]")


def _print_artifacts(artifacts: list[dict[str, Any]]) -> None:
    if artifacts:
        OUT.print("\n[bold]artifacts[/bold]")
    for artifact in artifacts:
        where = artifact["artifact_id"] or "in the payload"
        kind = artifact["artifact_type"] or artifact["mime_type"]
        OUT.print(f"  {marked(one_line(artifact['name']))} · {escape(kind)} · {size_text(artifact['size'])} · {where}")


def _print_step(step: dict[str, Any], planned: list[dict[str, Any]]) -> None:
    """Print a step. `planned`: the calls of the newest plan."""
    took = f" · {step['latency_ms']} ms" if step.get("latency_ms") is not None else ""
    state = step.get("status", "started")
    OUT.print(f"\n[bold]step {step['step']}[/bold] {escape(step.get('node', ''))} · {state}{took}")
    lines = [steps.plan_line(step["plan"])] if step.get("plan") else []
    lines += steps.plan_error_lines(step)
    if step.get("halt_reason"):
        left_out = steps.not_executed(planned, step["statuses"])
        lines.append(f"[red]✗ halted: {marked(one_line(step['halt_reason']))}{left_out}[/red]")
    for call in step["calls"]:
        lines.append(steps.call_line(call))
        if call["status"] != "started":
            lines.append(steps.outcome_line(call))
    for line in lines:
        OUT.print(f"  {line}")


def _costs(usage: dict[str, Any]) -> str:
    if not usage["model_calls"]:
        return "no model was called"
    money = "price unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
    tokens = f"{usage['prompt_tokens']} tokens in, {usage['completion_tokens']} out"
    return f"{money} · {steps.calls_text(usage)} · {tokens}{' (estimated)' if usage['estimated'] else ''}"
