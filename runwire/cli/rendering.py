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
            self._line(f"[red]✗ plan halted: {escape(short(one_line(event['halt_reason'])))}[/red]")
        elif event["status"] in {"failed", "invalid", "skipped"}:
            self._line(f"[red]✗ step {event['step']} {event['status']}[/red]")
            for error in event.get("errors") or []:
                self._line(f"  {plan_error_text(error)}")

    def _on_called(self, event: dict[str, Any]) -> None:
        self._show_calls(event["calls"])

    def _show_plan(self, plan: dict[str, Any] | None) -> None:
        if plan is not None:
            names = " → ".join(escape(call["tool_name"]) for call in plan["calls"])
            self._line(f"[cyan]plan: {names}[/cyan] [dim]{escape(short(one_line(plan['reasoning'])))}[/dim]")

    def _show_calls(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            arguments = json.dumps(call.get("args"), ensure_ascii=False)
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


def plan_error_text(error: dict[str, Any]) -> str:
    """Return an error of a plan with markup: the call that has it, or the plan, its type, and the wrong template."""
    place = "plan" if error["tool_index"] is None else f"call {error['tool_index']}"
    what = short(one_line(error.get("template") or error.get("argument") or ""))
    return f"[red]✗ {place}: {escape(error['error']['type'])}[/red] [dim]{escape(what)}[/dim]"


def calls_text(usage: dict[str, Any]) -> str:
    """How many calls a run has made, for people."""
    counts = {noun: usage.get(f"{noun}_calls", 0) for noun in ("model", "tool")}
    return ", ".join(f"{count} {noun} call{'' if count == 1 else 's'}" for noun, count in counts.items())
