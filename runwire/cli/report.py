"""How runs are shown and saved: lines of markup about plans and calls, a report, and files in a folder.

The lines serve while a run goes on and afterwards. A report is what is known of one run, as one document for programs,
or printed for people. Artifacts are values in the payload if they are small, and otherwise in the artifact store.

A saved run is its answer, its payload as JSON, and each artifact as a file.

Rule 1: names come from models, tools and users, so a file never gets a name that leaves the folder, hides, or means
something to a shell or an operating system.
Rule 2: no file is overwritten: a name that is taken gets a number.
"""

import asyncio
import contextlib
import json
import mimetypes
import re
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.markup import escape

from contracts.artifacts import ArtifactRef
from contracts.runs.decisions import PlanCall, PlanError
from runwire import events
from runwire.cli.pauses import name_of
from runwire.cli.printing import OUT, json_text, marked, one_line, print_fields, program, short, size_text, time_text
from runwire.client import Client
from runwire.plans import error_line

_QUIET_S = 1.0
"""A run that goes on is shown as it was when no event came for so long."""
_COLOURS = {"done": "green", "error": "red", "cancelled": "yellow"}
_OF_PLANS = {"plan", "errors", "errors_left_out", "statuses", "halt_reason"}
"""What a step of the strategy `planned` adds to its entry."""
_OUTCOME = {"status", "latency_ms", "observation", "failure"}


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
    _print_end(report)
    if report["ended_at"] is None:
        OUT.print(f"[dim]{program()} tail {report['run_id']} follows it[/dim]")


def _print_end(report: dict[str, Any]) -> None:
    """Print what has come of a run, what it waits for, and what it has cost."""
    payload, usage = report["payload"] or {}, report["usage"]
    if report["error"]:
        OUT.print(f"\n[bold red]error[/bold red] {marked(report['error'])}")
    if payload.get("raw_answer"):
        OUT.print(f"\n[bold]answer[/bold]\n{marked(payload['raw_answer'])}")
    for line in remarks(payload):
        OUT.print(line)
    for number, artifact in enumerate(report["artifacts"]):
        where = artifact["artifact_id"] or "in the payload"
        kind, size = artifact["artifact_type"] or artifact["mime_type"], size_text(artifact["size"])
        OUT.print("" if number else "\n[bold]artifacts[/bold]\n", end="")
        OUT.print(f"  {marked(one_line(artifact['name']))} · {escape(kind)} · {size} · {where}")
    for warning in payload.get("warnings") or []:
        OUT.print(f"[yellow]! {marked(one_line(warning))}[/yellow]")
    for pause in report["pauses"]:
        name = f"{report['run_id']}/{name_of(pause['pause_id'], pause['revision'])}"
        OUT.print(f"[yellow]{waiting_text(pause)}[/yellow] [dim]{name}[/dim]")
    if usage:
        money = "price unknown" if usage["cost_usd"] is None else f"{usage['cost_usd']:.4f} USD"
        tokens = f"{usage['prompt_tokens']} tokens in, {usage['completion_tokens']} out"
        costs = f"{money} · {calls_text(usage)} · {tokens}{' (estimated)' if usage['estimated'] else ''}"
        OUT.print(f"\n[bold]cost[/bold]      {costs if usage['model_calls'] else 'no model was called'}")


def _print_step(step: dict[str, Any], planned: list[dict[str, Any]]) -> None:
    """Print a step. `planned`: the calls of the newest plan."""
    took = f" · {step['latency_ms']} ms" if step.get("latency_ms") is not None else ""
    state = step.get("status", "started")
    OUT.print(f"\n[bold]step {step['step']}[/bold] {escape(step.get('node', ''))} · {state}{took}")
    lines = [plan_line(step["plan"])] if step.get("plan") else []
    lines += plan_error_lines(step)
    if step.get("halt_reason"):
        left_out = not_executed(planned, step["statuses"])
        lines.append(f"[red]✗ halted: {marked(one_line(step['halt_reason']))}{left_out}[/red]")
    for call in step["calls"]:
        lines.append(call_line(call))
        if call["status"] != "started":
            lines.append(outcome_line(call))
    for line in lines:
        OUT.print(f"  {line}")


@dataclass(frozen=True)
class RunArtifact:
    """One artifact: with `artifact_id` the store holds it, else it is `data`. `size` is in bytes."""

    name: str
    mime_type: str
    size: int
    artifact_type: str | None = None
    artifact_id: str | None = None
    own_id: str | None = None
    """The id that its tool gave it, any text."""
    skill_id: str | None = None
    skill_name: str | None = None
    is_file: bool = False
    """Whether `name` is the name of a file."""
    data: bytes = b""
    """What the payload holds: a text as it is, anything else as JSON."""

    @property
    def kind(self) -> str:
        """The media type, and how to show it."""
        return f"{self.mime_type} ({self.artifact_type})" if self.artifact_type else self.mime_type

    def described(self) -> dict[str, Any]:
        """What the command line prints as JSON."""
        names = ("name", "mime_type", "artifact_type", "size", "artifact_id", "own_id", "skill_id", "skill_name")
        return {name: getattr(self, name) for name in names}


async def artifacts_of(client: Client, run_id: str) -> list[RunArtifact]:
    """Return what the payload names, then what else the store holds of the run. Raises RunwireError."""
    status = await client.status(run_id, artifacts="refs")
    fields = status.payload.artifacts if status.payload else {}
    values = [(f"{tool}.{field}", value) for tool, own in fields.items() for field, value in own.items()]
    found = [_of_payload(name, value) for name, value in values]
    named = {each.artifact_id for each in found}
    return found + [each async for each in stored_artifacts(client, run_id) if each.artifact_id not in named]


async def stored_artifacts(
    client: Client, run_id: str | None, session_id: str | None = None, **wanted: str | None
) -> AsyncIterator[RunArtifact]:
    """Yield what the store holds of a run or a session. `wanted`: as for `Client.artifacts`. Raises RunwireError."""
    async for ref in client.artifacts(run_id, session_id=session_id, **wanted):
        yield _stored(ref.namespace or "artifact", ref)


def _of_payload(name: str, value: Any) -> RunArtifact:
    try:
        return _stored(name, ArtifactRef.model_validate(value))
    except ValidationError:
        kind = "text/plain" if isinstance(value, str) else "application/json"
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2) + "\n"
        data = text.encode(errors="replace")
        return RunArtifact(name, kind, len(data), data=data)


def _stored(name: str, ref: ArtifactRef) -> RunArtifact:
    fields = ref.model_dump(
        include={"mime_type", "size", "artifact_type", "artifact_id", "own_id", "skill_id", "skill_name"}
    )
    return RunArtifact(ref.filename or name, **fields, is_file=ref.filename is not None)


_MAX_NAME_BYTES, _MAX_SUFFIX_CHARACTERS = 120, 16
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Devices of Windows."""


async def save_run(client: Client, run_id: str, folder: Path) -> list[str]:
    """Save a run that has ended in a folder that exists, and return the names of the files.

    Raises RunwireError, OSError.
    """
    payload = (await client.status(run_id)).payload
    texts = {
        "answer.md": payload.raw_answer + "\n" if payload else "",
        "payload.json": payload.model_dump_json(indent=2) + "\n" if payload else "null\n",
    }
    names = [await _write(folder, name, once(text.encode(errors="replace"))) for name, text in texts.items()]
    for artifact in await artifacts_of(client, run_id):
        stored = client.fetch(artifact.artifact_id) if artifact.artifact_id else once(artifact.data)
        names.append(await _write(folder, file_name(artifact), stored))
    return names


def file_name(artifact: RunArtifact) -> str:
    """The name of an artifact's file: safe on every system, with the suffix of its type."""
    plain = artifact.name.replace("\\", "/").rpartition("/")[2] if artifact.is_file else artifact.name
    letters = re.sub(r"[^\w. -]", "_", unicodedata.normalize("NFC", plain)).strip(" .") or "artifact"
    suffix = Path(letters).suffix if artifact.is_file else ""
    stem = letters.removesuffix(suffix).encode()[:_MAX_NAME_BYTES].decode(errors="ignore").rstrip(" .")
    if not 0 < len(suffix) <= _MAX_SUFFIX_CHARACTERS:
        suffix = mimetypes.guess_extension(artifact.mime_type) or ""
    return f"_{stem}{suffix}" if _RESERVED.match(stem) or not stem else f"{stem}{suffix}"


async def once(data: bytes) -> AsyncIterator[bytes]:
    """One piece of bytes."""
    yield data


async def _write(folder: Path, name: str, pieces: AsyncIterator[bytes]) -> str:
    """Write a file under a name that is free, and return the name. A file that cannot be completed is removed."""
    path, number = folder / name, 1
    while True:
        try:
            target = path.open("xb")
            break
        except FileExistsError:
            number += 1
            path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    with contextlib.ExitStack() as incomplete:
        incomplete.callback(path.unlink, missing_ok=True)
        with target:
            async for piece in pieces:
                target.write(piece)
        incomplete.pop_all()
    return path.name
