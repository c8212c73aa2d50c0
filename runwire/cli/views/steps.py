"""How a plan, a call and its outcome are shown, while a run goes on and afterwards: lines of markup."""

from typing import Any

from pydantic import ValidationError
from rich.markup import escape

from contracts.runs.plans import PlanCall, PlanError
from runwire.cli.printing import json_text, marked, one_line, short
from runwire.plans import error_line


def call_line(call: dict[str, Any]) -> str:
    """A call that begins."""
    return f"[cyan]→ {escape(call['tool'])}[/cyan] [dim]{json_text(call.get('args'), cut=True)}[/dim]"


def outcome_line(call: dict[str, Any]) -> str:
    """A call that has ended."""
    if call["status"] == "succeeded":
        observation = json_text(call.get("observation"), cut=True)
        return f"[green]← {escape(call['tool'])}[/green] [dim]{call.get('latency_ms') or 0} ms · {observation}[/dim]"
    failure = call.get("failure") or {}
    reason = marked(one_line(failure.get("reason", "")))
    return f"[red]✗ {escape(call['tool'])}: {reason} ({escape(str(failure.get('code')))})[/red]"


def plan_line(plan: dict[str, Any]) -> str:
    """A plan: its tools in order, and the model's reason."""
    reasoning = short(one_line(plan["reasoning"]))
    text = f"plan: {' → '.join(call['tool_name'] for call in plan['calls'])}{f' · {reasoning}' if reasoning else ''}"
    return f"[cyan]{marked(text)}[/cyan]"


def plan_error_lines(step: dict[str, Any]) -> list[str]:
    """A line for each error of a step `plan` that is invalid: where it is, and how to mend it."""
    calls = [PlanCall.model_validate(call) for call in (step.get("plan") or {}).get("calls") or []]
    lines = []
    for error in step.get("errors") or []:
        try:
            lines.append(one_line(error_line(PlanError.model_validate(error), calls)))
        except ValidationError:  # Of a newer gateway.
            lines.append(one_line(str(error["error"]["type"])))
    if left_out := step.get("errors_left_out"):
        lines.append(f"and {left_out} more errors")
    return [f"[red]✗[/red] {escape(line)}" for line in lines]


def not_executed(planned: list[dict[str, Any]], statuses: list[str]) -> str:
    """Which calls of a plan were not executed, behind a comma; empty: all were."""
    names = [call["tool_name"] for call, status in zip(planned, statuses, strict=False) if status == "not_executed"]
    return f", not executed: {escape(', '.join(names))}" if names else ""


def waiting_text(pause: dict[str, Any]) -> str:
    """What waits for a person."""
    what = " · ".join(marked(one_line(text)) for text in (pause.get("tool"), pause.get("title")) if text)
    return f"waits for a person: {pause['reason']}{f' · {what}' if what else ''}"


def calls_text(usage: dict[str, Any]) -> str:
    """How many calls a run has made."""
    counts = {noun: usage.get(f"{noun}_calls", 0) for noun in ("model", "tool")}
    return ", ".join(f"{count} {noun} call{'' if count == 1 else 's'}" for noun, count in counts.items())


def remarks(payload: dict[str, Any]) -> list[str]:
    """Return what a payload says beside its answer, as lines."""
    route, confidence = payload.get("route"), payload.get("confidence")
    judged = [] if confidence is None else [f"confidence {confidence:.0%}"]
    judged += [] if route in {None, "answer"} else [f"route {one_line(route)}"]
    judged += ["asks for a reply"] if payload.get("requires_followup") else []
    actions = [
        f"{one_line(each.get('label') or '')} ({one_line(each['action_id'])})"
        for each in payload.get("suggested_actions") or []
    ]
    lines = [", ".join(judged)] if judged else []
    lines += [f"suggests: {', '.join(actions)}"] if actions else []
    extra = payload.get("extra") or {}
    suggested = [] if extra.get("custom_payload") else extra.get("suggested_values") or []
    values = [one_line(each["value"]) for each in suggested]
    lines += [f"you could say: {' · '.join(values)}"] if values else []
    return [f"[cyan]{marked(line)}[/cyan]" for line in lines]
