"""What is known of one run, as one document, and that document for people."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from contracts.runs.events import RunEvent
from runwire import events
from runwire.cli.artifact_commands import size_text
from runwire.cli.common import one_line, visible
from runwire.cli.exit_codes import program
from runwire.cli.open_pauses import name_of
from runwire.cli.rendering import calls_text, left_out, plan_error_lines, plan_line, short
from runwire.cli.run_artifacts import artifacts_of
from runwire.client import Client

_QUIET_S = 1.0
"""A run that goes on is shown as it was when no event came for so long."""
_COLOURS = {"done": "green", "error": "red", "cancelled": "yellow"}


async def report_of(client: Client, run_id: str) -> dict[str, Any]:
    """Return the fields of `RunStatus`, the whole `query`, `model`, `steps`, `error` and `artifacts`.

    Raises RunwireError.
    """
    status = await client.status(run_id, artifacts="refs")
    report = {**status.model_dump(mode="json"), "model": None, "steps": [], "error": None, "artifacts": []}
    steps: dict[tuple[int, str], dict[str, Any]] = {}
    node = ""
    calls: dict[str, dict[str, Any]] = {}
    async with aclosing(_known_events(client, run_id, has_ended=status.ended_at is not None)) as known:
        async for event in known:
            match event:
                case events.RunStarted():
                    report |= {"query": event.request.query, "model": event.model or None}
                case events.Step() | events.Called():
                    # A plan and its execution are steps of one number.
                    node = event.node if isinstance(event, events.Step) else node
                    step = steps.setdefault((event.step, node), {"step": event.step, "calls": []})
                    if isinstance(event, events.Step):
                        step |= _plan(event)
                        step |= {"node": event.node, "status": event.status, "latency_ms": event.latency_ms}
                    for planned in event.calls:
                        if planned.call_id not in calls:
                            calls[planned.call_id] = {}
                            step["calls"].append(calls[planned.call_id])
                        calls[planned.call_id].update(_call(planned))
                case events.Observed() if event.call_id in calls:
                    calls[event.call_id] |= event.model_dump(
                        mode="json", include={"status", "latency_ms", "observation", "failure"}
                    )
                case events.Error():
                    report["error"] = event.error
                case _:
                    pass
    report["steps"] = sorted(steps.values(), key=lambda step: step["step"])
    if status.payload is not None:
        report["artifacts"] = [artifact.described() for artifact in await artifacts_of(client, run_id)]
    return report


def _plan(step: events.Step) -> dict[str, Any]:
    """Return what a step of the strategy `planned` adds to its entry."""
    return step.model_dump(mode="json", include={"plan", "errors", "errors_left_out", "statuses", "halt_reason"})


def _call(planned: events.PlannedCall) -> dict[str, Any]:
    return {
        "tool": planned.tool,
        "args": planned.args,
        "status": "started",
        "latency_ms": None,
        "observation": None,
        "failure": None,
    }


async def _known_events(client: Client, run_id: str, *, has_ended: bool) -> AsyncGenerator[RunEvent, None]:
    """Yield the events up to now."""
    following = aiter(client.follow(run_id, artifacts="refs"))
    while True:
        try:
            async with asyncio.timeout(None if has_ended else _QUIET_S):
                event = await anext(following)
        except (StopAsyncIteration, TimeoutError):
            return
        yield event


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print a report for people."""

    def line(markup: str = "") -> None:
        console.print(markup, soft_wrap=True)

    state, because = report["status"], report["code"] or report["reason"] or report["paused"]
    because = None if because == state else because
    colour = _COLOURS.get(state, "cyan")
    line(f"[bold]run[/bold]       {report['run_id']}")
    line(f"[bold]status[/bold]    [{colour}]{state}[/{colour}]{f' · {escape(because)}' if because else ''}")
    line(f"[bold]asked[/bold]     {_times(report)}")
    line(f"[bold]agent[/bold]     {escape(report['agent'])} · model {escape(report['model'] or 'not chosen')}")
    line(f"[bold]question[/bold]  {escape(visible(report['query']))}")
    planned: list[dict[str, Any]] = []
    for step in report["steps"]:
        planned = step["plan"]["calls"] if step.get("plan") else planned
        _print_step(step, planned, line)
    payload = report["payload"] or {}
    if report["error"]:
        line(f"\n[bold red]error[/bold red] {escape(visible(report['error']))}")
    if payload.get("raw_answer"):
        line(f"\n[bold]answer[/bold]\n{escape(visible(payload['raw_answer']))}")
    if report["artifacts"]:
        line("\n[bold]artifacts[/bold]")
    for artifact in report["artifacts"]:
        where = artifact["artifact_id"] or "in the payload"
        kind = artifact["artifact_type"] or artifact["mime_type"]
        line(f"  {escape(one_line(artifact['name']))} · {escape(kind)} · {size_text(artifact['size'])} · {where}")
    for warning in payload.get("warnings") or []:
        line(f"[yellow]! {escape(one_line(warning))}[/yellow]")
    _print_pauses(report, line)
    if report["usage"]:
        line(f"\n[bold]cost[/bold]      {_costs(report['usage'])}")
    if report["ended_at"] is None:
        line(f"[dim]{program()} tail {report['run_id']} follows it[/dim]")


def _print_pauses(report: dict[str, Any], line: Callable[[str], None]) -> None:
    for pause in report["pauses"]:
        what = " · ".join(filter(None, (pause["reason"], pause["tool"], one_line(pause["title"]))))
        name = f"{report['run_id']}/{name_of(pause['pause_id'], pause['revision'])}"
        line(f"[yellow]waits for a person: {escape(what)}[/yellow] [dim]{name}[/dim]")


def _print_step(step: dict[str, Any], planned: list[dict[str, Any]], line: Callable[[str], None]) -> None:
    """Print a step. `planned`: the calls of the newest plan."""
    took = f" · {step['latency_ms']} ms" if step.get("latency_ms") is not None else ""
    line(f"\n[bold]step {step['step']}[/bold] {escape(step.get('node', ''))} · {step.get('status', 'started')}{took}")
    if step.get("plan"):
        line(f"  [cyan]{escape(plan_line(step['plan']))}[/cyan]")
    for text in plan_error_lines(step):
        line(f"  [red]✗[/red] {escape(text)}")
    if step.get("halt_reason"):
        halted = f"halted: {one_line(step['halt_reason'])}{left_out(planned, step['statuses'])}"
        line(f"  [red]✗ {escape(halted)}[/red]")
    for call in step["calls"]:
        line(f"  [cyan]→ {escape(call['tool'])}[/cyan] [dim]{_json(call['args'])}[/dim]")
        if call["status"] == "succeeded":
            line(f"  [green]←[/green] [dim]{call['latency_ms']} ms · {_json(call['observation'])}[/dim]")
        elif failure := call["failure"]:
            line(f"  [red]✗ {escape(one_line(failure['reason']))} ({escape(failure['code'])})[/red]")


def _times(report: dict[str, Any]) -> str:
    asked = datetime.fromtimestamp(report["requested_at"] / 1000, UTC).astimezone()
    took = (
        "" if report["ended_at"] is None else f" · ended after {_seconds(report['ended_at'] - report['requested_at'])}"
    )
    return f"{asked:%Y-%m-%d %H:%M:%S}{took}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


def _costs(usage: dict[str, Any]) -> str:
    if not usage["model_calls"]:
        return "no model was called"
    money = "price unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
    tokens = f"{usage['prompt_tokens']} tokens in, {usage['completion_tokens']} out"
    estimated = " (estimated)" if usage["estimated"] else ""
    return f"{money} · {calls_text(usage)} · {tokens}{estimated}"


def _json(value: Any) -> str:
    return escape(short(one_line(json.dumps(value, ensure_ascii=False))))
