"""Show a run in the terminal: its steps, thinking, answer and artifacts, as they arrive.

Of an answer as Markdown whole blocks are printed, and the open one is drawn anew with each piece. What is printed has
no escape sequences of a model's, and no link that hides its address.
"""

import re
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.markup import escape
from rich.text import Text

from runwire.cli import report
from runwire.cli.pauses import name_of
from runwire.cli.printing import OUT, json_text, one_line, program, short, visible

PAGE = Console(emoji=False, highlight=False)
"""Wraps words, in contrast to `printing.OUT`."""
_CODE, _PRODUCT = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)", re.DOTALL), re.compile(r"(?<=\d)\*(?=\d)")
_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)


def rendered(text: str) -> Markdown:
    """Text of a model for a terminal. A product of numbers, as 6*7, is no emphasis."""
    parts = _CODE.split(visible(text))
    parts[::2] = [_PRODUCT.sub(r"\\*", part) for part in parts[::2]]
    return Markdown("".join(parts), hyperlinks=False)


class GrowingAnswer:
    """Shows one answer in a terminal."""

    def __init__(self, console: Console = PAGE) -> None:
        self._console = console
        self._open = ""
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    def add(self, text: str) -> None:
        """Show one more piece."""
        self._live.start()
        whole, self._open = split(self._open + text)
        if whole:
            self._live.update("")
            self._console.print(rendered(whole), "")
        self._live.update(rendered(self._open), refresh=True)

    def end(self) -> None:
        """Print what is open; nothing is drawn anew afterwards."""
        self._live.stop()
        if self._open.strip():
            self._console.print(rendered(self._open))
        self._open = ""


def split(text: str) -> tuple[str, str]:
    """The blocks of a text that are whole, and the rest: a block ends with an empty line outside of a code block."""
    for end in reversed([found.end() for found in re.finditer(r"\n[ \t]*\n", text)]):
        if len(_FENCE.findall(text[:end])) % 2 == 0:
            return text[:end], text[end:]
    return "", text


class Screen:
    """Prints the events of one run in order. Where another attempt starts the answer anew, it says so."""

    def __init__(
        self, console: Console = OUT, warned: set[str] | None = None, answer: GrowingAnswer | None = None
    ) -> None:
        """`warned`: of a conversation, warnings that are not shown again; it shows no thinking, and asks in place.

        `answer`: shows answers; None: they are printed as they come.
        """
        self._answer = answer
        self._console = console
        self._is_conversation = warned is not None
        self._warned: set[str] = set() if warned is None else warned
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
        if (handler := getattr(self, f"_on_{event.get('type')}", None)) is not None:
            handler(event)

    def show_comment(self, text: str) -> None:
        """Print a comment of the gateway that is for people: the run waits."""
        if text.startswith("waiting"):
            self.remark(text)

    def remark(self, text: str | None) -> None:
        """Print what is no event, if there is something."""
        if text:
            self._line(f"[dim]{escape(text)}[/dim]")

    def _line(self, text: str) -> None:
        self.close()
        self._console.print(visible(text))

    def close(self) -> None:
        """End the open line, or answer."""
        if self._open_channel == "answer" and self._answer is not None:
            self._answer.end()
        elif self._open_channel is not None:
            self._console.print()
        self._open_channel = None

    def _write(self, channel: str, text: str, style: str) -> None:
        if self._open_channel != channel:
            self.close()
            self._open_channel = channel
        if channel == "answer" and self._answer is not None:
            self._answer.add(text)
        else:
            self._console.print(Text(visible(text), style=style), end="")

    def _on_run_started(self, event: dict[str, Any]) -> None:
        self._run_id = event["run_id"]
        model, tools = escape(event.get("model") or "?"), len(event.get("tools") or {})
        self._line(f"[dim]run {event['run_id']} · model {model} · {tools} tools[/dim]")

    def _on_thinking(self, event: dict[str, Any]) -> None:
        if not self._is_conversation and event.get("text"):
            self._write("thinking", event["text"], "dim italic")

    def _on_chunk(self, event: dict[str, Any]) -> None:
        attempt, seq = (event.get("action_seq", 0), event.get("attempt", 0)), event.get("seq", 0)
        if attempt != self._attempt:
            if self._attempt is not None and seq == 0 and self._open_channel == "answer":
                self._line("[yellow]… begun again[/yellow]")
            self._lacks_beginning = seq > 0
        self._attempt = attempt
        if event.get("text") and not self._lacks_beginning:
            self._write("answer", event["text"], "bold")

    def _on_step(self, event: dict[str, Any]) -> None:
        if event["status"] == "started":
            if event.get("plan"):
                self._planned = event["plan"]["calls"]
                self._line(report.plan_line(event["plan"]))
            self._show_calls(event.get("calls") or [])
        elif event.get("halt_reason"):
            # A failed call above says the reason already.
            reason = "" if "failed" in event["statuses"] else f": {escape(short(one_line(event['halt_reason'])))}"
            left_out = report.not_executed(self._planned, event["statuses"])
            self._line(f"[red]✗ plan halted{reason}[/red]{left_out}")
        elif event["status"] in {"failed", "invalid", "skipped"}:
            what = "plan" if event.get("plan") else f"step {event['step']}"
            self._line(f"[red]✗ {what} {event['status']}[/red]")
            for line in report.plan_error_lines(event):
                self._line(f"  {line}")

    def _on_called(self, event: dict[str, Any]) -> None:
        self._show_calls(event["calls"])

    def _show_calls(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            shown = (call.get("call_id"), json_text(call.get("args")))
            if shown not in self._called:
                self._called.add(shown)
                self._line(report.call_line(call))

    def _on_observed(self, event: dict[str, Any]) -> None:
        self._line(report.outcome_line(event))

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
        if self._is_conversation:
            return
        self._line(f"[yellow]{report.waiting_text(event)}[/yellow]")
        name = name_of(event["pause_id"], event.get("revision", 1))
        self._line(f"[dim]{program()} approvals --run {self._run_id}, then approve {self._run_id}/{name}[/dim]")

    def _on_resumed(self, event: dict[str, Any]) -> None:
        if event.get("pause_id") is not None:
            by = f" by {escape(one_line(event['by']))}" if event.get("by") else ""
            self._line(f"[yellow]{event.get('decision')}{by}[/yellow] [dim]{escape(event.get('note', ''))}[/dim]")

    def _on_done(self, event: dict[str, Any]) -> None:
        if self._lacks_beginning:
            self._write("answer", event["raw_answer"], "bold")
        self.close()
        for line in report.remarks(event):
            self._line(f"  {line}")
        for warning in event.get("warnings") or []:
            if warning not in self._warned:
                self._line(f"[yellow]! {escape(warning)}[/yellow]")
        self._warned.update(event.get("warnings") or [])
        for tool, fields in (event.get("artifacts") or {}).items():
            self._line(f"[magenta]  artifacts of {escape(tool)}: {escape(', '.join(fields))}[/magenta]")
        if event.get("artifacts"):
            self._line(f"[dim]  to see them: {program()} artifacts {self._run_id} --open[/dim]")
        for source in event.get("sources") or []:
            self._line(
                f"[blue]  source: {escape(source.get('title', ''))} [dim]{escape(source.get('url') or '')}[/dim][/blue]"
            )
        usage = event.get("usage") or {}
        self._line(f"[dim]{event['reason']} · {report.calls_text(usage)}[/dim]")

    def _on_error(self, event: dict[str, Any]) -> None:
        self._line(f"[red]error: {escape(event['error'])} ({event['code']}, trace {event['trace_id']})[/red]")

    def _on_cancelled(self, event: dict[str, Any]) -> None:
        self._line(f"[yellow]cancelled {escape(event.get('reason', ''))}[/yellow]")
