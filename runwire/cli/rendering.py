"""Show a run in the terminal: its steps, thinking, answer and artifacts, as they arrive."""

import json
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from runwire.cli.common import one_line, visible
from runwire.cli.exit_codes import program
from runwire.cli.open_pauses import name_of

_MAX_SHOWN_CHARACTERS = 160


class Screen:
    """Prints the events of one run in order. Where another attempt starts the answer anew, it says so."""

    def __init__(self, console: Console, *, thinking: bool = True, commands: bool = True) -> None:
        """`commands`: show pauses, with the commands that decide; False: the caller asks in place."""
        self._console = console
        self._thinking = thinking
        self._commands = commands
        self._run_id = "RUN"
        self._open_channel: str | None = None
        self._attempt: tuple[int, int] | None = None
        self._lacks_beginning = False
        """The first chunks of the answer have expired."""
        self._piece_counts: dict[str, int] = {}
        self._planned: list[dict[str, Any]] = []
        """The calls of the newest plan."""
        self._called: set[tuple[str | None, str]] = set()
        """Calls that were shown: id, arguments. One may be announced again, as when another planner goes on with it."""

    def show(self, event: dict[str, Any]) -> None:
        """Print one event."""
        handler = getattr(self, f"_on_{event.get('type')}", None)
        if handler is not None:
            handler(event)

    def show_comment(self, text: str) -> None:
        """Print a comment of the gateway that is for people: the run waits."""
        if text.startswith("waiting"):
            self._line(f"[dim]{escape(text)}[/dim]")

    def _line(self, text: str) -> None:
        self._close()
        self._console.print(visible(text), soft_wrap=True, highlight=False)

    def _close(self) -> None:
        if self._open_channel is not None:
            self._console.print()
            self._open_channel = None

    def _write(self, channel: str, text: str, style: str) -> None:
        if self._open_channel != channel:
            self._close()
            self._open_channel = channel
        self._console.print(Text(visible(text), style=style), end="", soft_wrap=True)

    def _on_run_started(self, event: dict[str, Any]) -> None:
        self._run_id = event["run_id"]
        model, tools = escape(event.get("model") or "?"), len(event.get("tools") or {})
        self._line(f"[dim]run {event['run_id']} · model {model} · {tools} tools[/dim]")

    def _on_thinking(self, event: dict[str, Any]) -> None:
        if self._thinking and event.get("text"):
            self._write("thinking", event["text"], "dim italic")

    def _on_chunk(self, event: dict[str, Any]) -> None:
        attempt = (event.get("action_seq", 0), event.get("attempt", 0))
        if (
            self._attempt is not None
            and attempt != self._attempt
            and event.get("seq") == 0
            and self._open_channel == "answer"
        ):
            self._line("[yellow]… begun again[/yellow]")
        if attempt != self._attempt:
            self._lacks_beginning = event.get("seq", 0) > 0
        self._attempt = attempt
        if event.get("text") and not self._lacks_beginning:
            self._write("answer", event["text"], "bold")

    def _on_step(self, event: dict[str, Any]) -> None:
        if event["status"] == "started":
            self._show_plan(event.get("plan"))
            self._show_calls(event.get("calls") or [])
        elif event.get("halt_reason"):
            self._show_halt(event)
        elif event["status"] in {"failed", "invalid", "skipped"}:
            what = "plan" if event.get("plan") else f"step {event['step']}"
            self._line(f"[red]✗ {what} {event['status']}[/red]")
            for line in plan_error_lines(event):
                self._line(f"  [red]✗[/red] {escape(line)}")

    def _on_called(self, event: dict[str, Any]) -> None:
        self._show_calls(event["calls"])

    def _show_plan(self, plan: dict[str, Any] | None) -> None:
        if plan is not None:
            self._planned = plan["calls"]
            self._line(f"[cyan]{escape(plan_line(plan))}[/cyan]")

    def _show_halt(self, event: dict[str, Any]) -> None:
        """Say what was not executed, and why, unless a failed call above says it."""
        reason = "" if "failed" in event["statuses"] else f": {escape(short(one_line(event['halt_reason'])))}"
        self._line(f"[red]✗ plan halted{reason}[/red]{escape(left_out(self._planned, event['statuses']))}")

    def _show_calls(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            arguments = json.dumps(call.get("args"), ensure_ascii=False)
            if (call.get("call_id"), arguments) in self._called:
                continue
            self._called.add((call.get("call_id"), arguments))
            self._line(f"[cyan]→ {escape(call['tool'])}[/cyan] [dim]{escape(short(arguments))}[/dim]")

    def _on_observed(self, event: dict[str, Any]) -> None:
        if event["status"] == "succeeded":
            observation = escape(short(json.dumps(event.get("observation"), ensure_ascii=False)))
            tool, latency_ms = escape(event["tool"]), event.get("latency_ms", 0)
            self._line(f"[green]← {tool}[/green] [dim]{latency_ms} ms · {observation}[/dim]")
        else:
            failure = event.get("failure") or {}
            self._line(
                f"[red]✗ {escape(event['tool'])}: {escape(failure.get('reason', ''))} ({failure.get('code')})[/red]"
            )

    def _on_tool_progress(self, event: dict[str, Any]) -> None:
        fraction = event.get("fraction")
        share = f" {fraction:.0%}" if fraction is not None else ""
        self._line(f"[dim]  {escape(event['tool'])}{share} {escape(event.get('message', ''))}[/dim]")

    def _on_artifact_chunk(self, event: dict[str, Any]) -> None:
        stream = event["stream_id"]
        self._piece_counts[stream] = self._piece_counts.get(stream, 0) + 1
        if event.get("done"):
            name = f"{escape(event.get('artifact_type') or 'artifact')} “{escape(stream)}”"
            self._line(f"[magenta]  {name} complete after {self._piece_counts[stream]} pieces[/magenta]")

    def _on_repaired(self, event: dict[str, Any]) -> None:
        self._line(f"[yellow]  reply repaired: {escape(short(event.get('reason', '')))}[/yellow]")

    def _on_queued(self, _event: dict[str, Any]) -> None:
        self._line("[dim]waits for its turn in the session[/dim]")

    def _on_input_added(self, event: dict[str, Any]) -> None:
        verb = "question replaced" if event.get("redirect") else "added"
        self._line(f"[cyan]+ {verb}: {escape(short(event.get('text') or 'images'))}[/cyan]")

    def _on_paused(self, event: dict[str, Any]) -> None:
        if event.get("pause_id") is None:
            self._line(f"[yellow]waits for a top-up: {escape(event.get('budget', ''))} is spent[/yellow]")
            return
        if not self._commands:
            return
        what = " · ".join(escape(text) for text in (event.get("tool"), one_line(event.get("title") or "")) if text)
        self._line(f"[yellow]waits for a person: {event['reason']}{f' · {what}' if what else ''}[/yellow]")
        name = name_of(event["pause_id"], event.get("revision", 1))
        self._line(f"[dim]{program()} approvals --run {self._run_id}, then approve {self._run_id}/{name}[/dim]")

    def _on_resumed(self, event: dict[str, Any]) -> None:
        if event.get("pause_id") is not None:
            by = f" by {escape(one_line(event['by']))}" if event.get("by") else ""
            self._line(f"[yellow]{event.get('decision')}{by}[/yellow] [dim]{escape(event.get('note', ''))}[/dim]")

    def _on_done(self, event: dict[str, Any]) -> None:
        if self._lacks_beginning:
            self._write("answer", event["raw_answer"], "bold")
        self._close()
        for warning in event.get("warnings") or []:
            self._line(f"[yellow]! {escape(warning)}[/yellow]")
        for tool, fields in (event.get("artifacts") or {}).items():
            self._line(f"[magenta]  artifacts of {escape(tool)}: {escape(', '.join(fields))}[/magenta]")
        for source in event.get("sources") or []:
            self._line(
                f"[blue]  source: {escape(source.get('title', ''))} [dim]{escape(source.get('url') or '')}[/dim][/blue]"
            )
        usage = event.get("usage") or {}
        self._line(f"[dim]{event['reason']} · {calls_text(usage)}[/dim]")

    def _on_error(self, event: dict[str, Any]) -> None:
        self._line(f"[red]error: {escape(event['error'])} ({event['code']}, trace {event['trace_id']})[/red]")

    def _on_cancelled(self, event: dict[str, Any]) -> None:
        self._line(f"[yellow]cancelled {escape(event.get('reason', ''))}[/yellow]")


def short(text: str) -> str:
    """Text cut to what fits beside a tool's name."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


def plan_line(plan: dict[str, Any]) -> str:
    """Return a plan as one line: its tools in order, and the model's reason."""
    reasoning = short(one_line(plan["reasoning"]))
    return f"plan: {' → '.join(call['tool_name'] for call in plan['calls'])}{f' · {reasoning}' if reasoning else ''}"


def plan_error_lines(step: dict[str, Any]) -> list[str]:
    """Return a line for each error of a step `plan` that is invalid: where it is, and how to mend it."""
    if not step.get("errors"):
        return []
    from pydantic import ValidationError  # noqa: PLC0415, few runs have such a step

    from contracts.runs.plans import PlanCall, PlanError  # noqa: PLC0415
    from runwire.plans import error_line  # noqa: PLC0415

    calls = [PlanCall.model_validate(call) for call in (step.get("plan") or {}).get("calls") or []]
    lines = []
    for error in step["errors"]:
        try:
            lines.append(one_line(error_line(PlanError.model_validate(error), calls)))
        except ValidationError:  # Of a newer gateway.
            lines.append(one_line(str(error["error"]["type"])))
    left_out = step.get("errors_left_out")
    return [*lines, f"and {left_out} more errors"] if left_out else lines


def left_out(planned: list[dict[str, Any]], statuses: list[str]) -> str:
    """Return which calls of a plan were not executed, behind a comma; empty: all were."""
    names = [call["tool_name"] for call, status in zip(planned, statuses, strict=False) if status == "not_executed"]
    return f", not executed: {', '.join(names)}" if names else ""


def calls_text(usage: dict[str, Any]) -> str:
    """How many calls a run has made, for people."""
    counts = {noun: usage.get(f"{noun}_calls", 0) for noun in ("model", "tool")}
    return ", ".join(f"{count} {noun} call{'' if count == 1 else 's'}" for noun, count in counts.items())
