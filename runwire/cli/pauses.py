"""Open pauses and proposals for people: how they are shown and named, and what an answer's text means.

A pause is named `RUN/PAUSE`: the first digits of its id, and behind a dot its revision if that is not the first. So a
name that was read earlier never stands for a call that has changed since.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from runwire.cli.frame import Found
from runwire.cli.printing import ERR, OUT, Exit, json_text, marked, one_line, print_error, program, time_text
from runwire.client import Client, OpenPause, ProposalView, RunStatus
from runwire.errors import NotFound, PauseChanged
from runwire.events import RunEvent, ToolProgress

Approved = Annotated[bool, typer.Option("--yes", help="Approve the call, with the key's right to do so.")]

_FORM_KEYWORDS = frozenset({"type", "properties", "required", "title", "description", "additionalProperties"})
_SIMPLE_TYPES = frozenset({"string", "integer", "number", "boolean"})
_SAID = frozenset({"type", "title", "description"})
_SHOWN_DIGITS = 8


def name_of(pause_id: str, revision: int) -> str:
    """The part of a pause's name behind the run."""
    return pause_id[:_SHOWN_DIGITS] + (f".{revision}" if revision > 1 else "")


def named(pauses: Iterable[OpenPause], name: str) -> OpenPause:
    """The pause of that name; an empty one stands for the only pause. Raises NotFound and PauseChanged."""
    start, _, rest = name.partition(".")
    found = [pause for pause in pauses if pause.pause_id.startswith(start)]
    if len(found) != 1:
        names = ", ".join(name_of(pause.pause_id, pause.revision) for pause in found)
        which = f"{len(found)} open pauses, {names}," if found else "no open pause"
        raise NotFound("not_found", f"the run has {which} {f'named {name}' if name else 'to choose from'}")
    (pause,) = found
    if name and (rest.partition(".")[0] or "1") != str(pause.revision):
        raise PauseChanged("pause_changed", "something else waits now: `runwire approvals` shows it under its new name")
    return pause


def _payload_lines(payload: Any) -> list[str]:
    """What the payload of a pause shows: of a call of a plan, the plan with this call marked."""
    plan = payload.get("plan") if isinstance(payload, dict) and payload.keys() == {"plan", "call"} else None
    calls = plan.get("calls") if isinstance(plan, dict) else None
    if not isinstance(calls, list) or not all(isinstance(each, dict) and "tool_name" in each for each in calls):
        return [f"[dim]shown to you:[/dim] {json_text(payload)}"]
    lines = ["[dim]a call of this plan:[/dim]"]
    for number, call in enumerate(calls):
        mark = "→" if number == payload["call"] else " "
        arguments = f" {json_text(call['arguments'])}" if "arguments" in call else ""
        lines.append(f"{mark} {number} {marked(one_line(str(call['tool_name'])))}{arguments}")
    return lines


def print_pause(pause: OpenPause, console: Console = OUT) -> None:
    """Print all that a person needs for a decision. Nothing is cut: it is what will be executed."""
    what, until = marked(pause.tool or pause.source), time_text(pause.expires_at, "%Y-%m-%d %H:%M")
    console.print(f"[bold yellow]{pause.reason}[/bold yellow] · [bold]{what}[/bold] · until {until}")
    lines = [marked(one_line(pause.title))] if pause.title else []
    lines += [f"{marked(one_line(name))} = {json_text(value)}" for name, value in (pause.arguments or {}).items()]
    if pause.payload is not None:
        lines += _payload_lines(pause.payload)
    if pause.rule:
        lines.append(f"[dim]asked for by the rule {marked(one_line(pause.rule))}[/dim]")
    if len(pause.plan) > 1:
        lines.append(f"[dim]one of {len(pause.plan)} calls of its plan[/dim]")
    if pause.input_schema is not None:
        fields = form_of(pause.input_schema)
        lines += [f"[dim]answer:[/dim] {marked(one_line(field.shown))}" for field in fields]
        lines += [] if fields else [f"[dim]answer:[/dim] {json_text(pause.input_schema)}"]
    if pause.default == "answer":
        lines.append(f"[dim]if nobody answers:[/dim] {json_text(pause.default_answer)}")
    for line in lines:
        console.print(f"  {line}")


@dataclass(frozen=True)
class FormField:
    """A field of an answer. `shown`: its name, type and bounds, and what it means."""

    name: str
    shown: str
    schema: dict[str, Any]

    def value(self, text: str) -> Any:
        """What a text stands for. Raises ValueError where it is no JSON and must be."""
        if self.schema.get("type") == "string" or text in self.schema.get("enum", ()):
            return text
        words = {"yes": True, "no": False} if self.schema.get("type") == "boolean" else {}
        return words[text] if text in words else json.loads(text)


def form_of(schema: dict[str, Any]) -> list[FormField]:
    """The fields of an answer that is an object of simple values; none: it is something else."""
    properties, required = schema.get("properties"), schema.get("required") or []
    if schema.get("type") != "object" or not isinstance(properties, dict) or not set(schema) <= _FORM_KEYWORDS:
        return []
    fields = []
    for name, inner in properties.items():
        if not isinstance(inner, dict) or not ("enum" in inner or inner.get("type") in _SIMPLE_TYPES):
            return []
        words = [f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in inner.items() if key not in _SAID]
        parts = [str(inner.get("type", "")), *words, "" if name in required else "optional"]
        meaning = f": {inner['description']}" if inner.get("description") else ""
        fields.append(FormField(name, f"{name} ({', '.join(filter(None, parts))}){meaning}", inner))
    return fields


def answer_of(pause: OpenPause, text: str) -> Any:
    """The value that a text stands for: itself where text is wanted, else JSON. Raises ValueError for what is neither.

    A schema that wants an object with one required text takes the text as that.
    """
    schema = pause.input_schema or {"type": "string"}
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if schema.get("type") == "string" or text in schema.get("enum", ()):
        return text
    if text[:1] != "{" and len(required) == 1 and (properties.get(required[0]) or {}).get("type") == "string":
        return {required[0]: text}
    return json.loads(text)


async def called(client: Client, run: RunStatus, *, is_approved: bool) -> Found:
    """Return what a call of a tool has given, or what it waits for. `is_approved`: decide about approvals now."""
    while is_approved and any(pause.reason == "approval" for pause in run.pauses):
        for pause in run.pauses:
            if pause.reason == "approval":
                await client.approve(pause)
        run = await client.wait(run.run_id, on_event=print_progress)

    def show() -> None:
        if run.payload is not None and run.status == "done":
            OUT.print(json_text(run.payload.extra.get("result")))
        for warning in run.payload.warnings if run.payload is not None else ():
            print_error(warning)
        for pause in run.pauses:
            name = f"{run.run_id}/{name_of(pause.pause_id, pause.revision)}"
            print_error(f"it waits for a person: {program()} approve {name}")
            print_pause(pause, ERR)

    is_done = run.status == "done" and run.reason == "answer_complete"
    return Found(run, show, 0 if is_done else Exit.INCOMPLETE if run.status != "error" else Exit.ERROR)


def print_progress(event: RunEvent) -> None:
    """Print what a tool reports of its call; nothing of another event."""
    if isinstance(event, ToolProgress):
        share = "" if event.fraction is None else f" {event.fraction:.0%}"
        ERR.print(f"[dim]{marked(one_line(event.message))}{share}[/dim]")


_SIGNS = {"add": "+", "update": "~", "modify": "~", "delete": "-", "remove": "-", "reorder": ">"}
_COLOURS = {"+": "green", "~": "yellow", "-": "red", ">": "blue"}


def print_proposal(proposal: ProposalView) -> None:
    """Print a proposal as it is now."""
    OUT.print(f"[bold]{marked(proposal.summary)}[/bold] [dim]{proposal.state} · {proposal.proposal_id}[/dim]")
    verdicts = {each["index"]: each for each in proposal.verdicts}
    for number, text in enumerate(_lines(proposal)):
        verdict = verdicts.get(number, {})
        status = verdict.get("status")
        colour = _COLOURS.get(text[0], "default")
        mark = "x" if status == "failed" else "✓" if status == "applied" else " "
        reason = f"  [red]{marked(verdict.get('code', ''))}: {marked(verdict.get('reason') or '')}[/red]"
        OUT.print(f"{mark}{number:>4} [{colour}]{text}[/{colour}]{reason if 'code' in verdict else ''}")
    for row in proposal.view.get("samples", {}).get("rows", ()):
        OUT.print(f"      [dim]sample {json_text(row)}[/dim]")
    if (report := proposal.report) is not None:
        OUT.print(f"[bold]{report.applied} applied, {report.failed} failed[/bold]")
        for refused in report.refused if not verdicts else ():
            OUT.print(f"      [red]{marked(refused.code)}: {marked(refused.reason)}[/red]")
    elif proposal.code is not None:
        OUT.print(f"[red]the last apply has failed: {marked(proposal.code)}[/red]")


def _lines(proposal: ProposalView) -> Iterator[str]:
    """Yield a line of markup for each operation."""
    names = proposal.view.get("names", {})
    was = {
        (row["key"], cell["column_id"]): cell["tooltip"]
        for row in proposal.view.get("rows", ())
        for cell in row["changed_cells"]
    }

    def named(column: Any) -> str:
        return marked(str(names.get(str(column), column)))

    def cells(values: Any, row: str = "") -> str:
        texts = []
        if not isinstance(values, dict):  # A model may have written anything.
            return json_text(values)
        for column, value in values.items():
            before = f" ({marked(was[row, column])})" if (row, column) in was else ""
            texts.append(f"{named(column)}: {json_text(value)}{before}")
        return ", ".join(texts)

    for given in proposal.data.get("operations") or ():
        operation = given if isinstance(given, dict) else {}
        action = str(operation.get("action", ""))
        sign, place = _SIGNS.get(action, "?"), operation.get("row_id", operation.get("column_id"))
        name = marked(f"row {place}") if "row_id" in operation else named(place)
        match action:
            case "add" if isinstance(operation.get("column"), dict):
                column = operation["column"]
                more = {key: value for key, value in column.items() if key not in {"name", "type"}}
                text = f"{marked(str(column.get('name')))} {marked(str(column.get('type')))} {cells(more)}".rstrip()
            case "add":
                text = cells(operation.get("data") or {})
            case "update" | "modify":
                text = f"{name}  {cells(operation.get('changes') or {}, f'row:{place}')}"
            case "reorder":
                after = operation.get("after_column_id")
                text = f"{name}  {'first' if after is None else f'after {named(after)}'}"
            case _:
                text = name
        yield f"{sign} {text}"
