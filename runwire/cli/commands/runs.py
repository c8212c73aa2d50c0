"""Commands on runs: start one, follow it, stop it, delete it; list them, show one; and schedules, which start them."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import typer

from contracts.runs.events import RunStarted
from contracts.runs.requests import RunInput, State, Waits
from runwire.cli import frame
from runwire.cli.printing import OUT, Exit, Since, age_text, one_line, print_error, print_fields, print_json, program
from runwire.cli.report import print_report, report_of, save_run
from runwire.cli.screen import Screen
from runwire.client import Client, RunStatus, ScheduleCreated, ScheduleView
from runwire.client.options import image_inputs

commands = typer.Typer()
runs, schedule = typer.Typer(cls=frame.Noun), typer.Typer(cls=frame.Noun)
commands.add_typer(runs, name="runs")
commands.add_typer(schedule, name="schedule")
ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="As `runwire schedule ls` prints it.")]
_WATCH_S = 1.0


Images = Annotated[
    list[Path] | None,
    typer.Option(exists=True, dir_okay=False, help="A png, jpeg, webp or gif to show to the model; may be repeated."),
]
Vision = Annotated[
    Literal["strict", "lenient"] | None,
    typer.Option(help="Images for a model that takes none: strict refuses the run, lenient drops them with a warning."),
]
Effort = Annotated[Literal["low", "medium", "high", "auto"] | None, typer.Option(help="How long the model thinks.")]
OnBusy = Annotated[
    Literal["queue", "steer", "reject", "cancel"] | None,
    typer.Option(help="While another run of the session has the turn: wait, add the text to it, fail, or end it."),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="Save the answer, the payload and every artifact here; a folder that is new or empty.",
    ),
]


@frame.command(commands)
async def run(
    client: Client,
    question: str,
    session: Annotated[str | None, typer.Option(help="The session to continue. Default: a new one.")] = None,
    agent: frame.Agent = None,
    strategy: Annotated[
        Literal["react", "planned"] | None,
        typer.Option(help="react decides after each result; planned plans all calls first. Default: the agent's."),
    ] = None,
    model: frame.Model = None,
    tool: Annotated[
        list[str] | None, typer.Option(help="A tool that the run may use; may be repeated. Default: all.")
    ] = None,
    image: Images = None,
    vision: Vision = None,
    effort: Effort = None,
    user: Annotated[str | None, typer.Option(help="The user on whose behalf you ask.")] = None,
    context: Annotated[
        str | None, typer.Option(metavar="JSON", help="An object that the model is shown beside the question.")
    ] = None,
    on_busy: OnBusy = None,
    max_steps: Annotated[int | None, typer.Option(min=1)] = None,
    max_tool_calls: Annotated[int | None, typer.Option(min=0)] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    max_cost_usd: Annotated[float | None, typer.Option(min=0)] = None,
    deadline_s: Annotated[float | None, typer.Option(min=0.001)] = None,
    save: Folder = None,
    output: frame.Format = "text",
) -> int:
    """Ask a question and show how it is answered."""
    if save is not None:  # It fails before the run costs anything.
        save.mkdir(parents=True, exist_ok=True)
        if any(save.iterdir()):
            raise typer.BadParameter(f"{save} is not empty, and nothing is overwritten", param_hint="--save")
    try:
        images = image_inputs(image or ()) or None
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--image") from None
    limits = frame.given(
        max_steps=max_steps,
        max_tool_calls=max_tool_calls,
        max_tokens=max_tokens,
        max_cost_usd=max_cost_usd,
        deadline_s=deadline_s,
    )
    options = frame.given(session_id=session, agent=agent, strategy=strategy, model=model, tools=tool, vision=vision)
    options |= frame.given(reasoning_effort=effort, user_id=user, on_busy=on_busy)
    if context is not None:
        options["llm_context"] = frame.json_object(context, "--context")
    run_id = await client.start(question, **options, **frame.given(limits=limits or None, images=images))
    code = await show(client, run_id, output)
    if save is not None:
        sys.stderr.write(f"saved in {save}: {', '.join(await save_run(client, run_id, save))}\n")
    return code


async def ask(url: str, question: str, remark: Callable[[dict[str, Any]], str | None]) -> int:
    """Start a run, show it and return the exit code. `remark`: what is said after an event, if anything."""
    async with Client(url) as client:
        return await show(client, await client.start(question), "text", remark)


@frame.command(commands)
async def tail(client: Client, run_id: frame.RunId = frame.NEWEST, output: frame.Format = "text") -> int:
    """Follow a run from its beginning, whether it is running or has ended."""
    return await show(client, run_id, output)


async def show(
    client: Client, run_id: str, output: frame.Output, remark: Callable[[dict[str, Any]], str | None] = lambda _: None
) -> int:
    """Show a run to its end and return the exit code."""
    screen, end = Screen(), dict[str, Any]()
    on_comment = screen.show_comment if output == "text" else lambda _: None
    try:
        async for event in client.follow(run_id, on_comment=on_comment):
            end = event.model_dump(mode="json")
            if output == "jsonl":
                print_json(end)
            elif output == "text":
                screen.show(end)
                screen.remark(remark(end))
    except asyncio.CancelledError:
        sys.stderr.write("\n")
        print_error(f"the run continues: `{program()} tail {run_id}` shows it, `{program()} cancel {run_id}` stops it")
        raise
    kind, reason = end.get("type"), end.get("reason")
    if output == "json":
        rest = {name: value for name, value in end.items() if name not in {"type", "reason", "usage"}}
        head = {"run_id": run_id, "status": kind, "reason": reason, "code": end.get("code")}
        print_json({**head, "payload": end.get("payload") or rest, "usage": end.get("usage")})
    if kind == "done":
        return 0 if reason == "answer_complete" else Exit.INCOMPLETE
    return Exit.CANCELLED if kind == "cancelled" else Exit.ERROR


@frame.command(runs, "cancel")
@frame.command(commands)
async def cancel(
    client: Client,
    run_id: frame.RunId,
    reason: Annotated[str, typer.Option(help="Shown to all who follow it.")] = "",
) -> None:
    """Stop a run."""
    before = await client.cancel(run_id, reason)
    what = "had ended before" if before.ended_at is not None else "is cancelled"
    sys.stderr.write(f"{run_id} {what}: {one_line(before.query)}\n")


@frame.command(runs)
async def retry(client: Client, run_id: frame.RunId = frame.NEWEST, output: frame.Format = "text") -> int:
    """Ask the same question again, as a new run of the same session, and show how it is answered.

    No answer shows the `tool_context` of a run, so the new one has none.
    """
    async with aclosing(aiter(client.follow(run_id, artifacts="refs"))) as events:
        started = await anext(events)
    if not isinstance(started, RunStarted) or started.request.cause != "user":
        raise typer.BadParameter(f"{run_id} was not asked by a caller", param_hint="RUN")
    asked = started.request
    options = asked.model_dump(include=RunInput.model_fields.keys() - {"query", "images"}, exclude_defaults=True)
    images = [image.artifact_id for image in asked.images]
    return await show(client, await client.start(asked.query, images=images, **options), output)


@frame.command(commands)
async def delete(client: Client, run_id: frame.RunId) -> None:
    """Delete a run with its events, artifacts and images; one that is still running is cancelled first."""
    await client.delete(run_id)
    sys.stderr.write(f"{run_id} is deleted\n")


@frame.command(runs)
async def ls(
    client: Client,
    status: Annotated[
        Literal[State, Waits] | None,
        typer.Option(help="Only runs in this state. waiting: for a person; paused: for a top-up."),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    session: Annotated[str | None, typer.Option(help="Only runs of this session."), frame.SESSION] = None,
    since: Since = None,
    limit: frame.Limit = 20,
    watch: Annotated[bool, typer.Option("--watch", help="Print the list again when it changes, until Ctrl-C.")] = False,
    output: frame.Format = "text",
) -> frame.Found:
    """List runs, the newest first: id, status, age, error, question."""
    columns, nouns = ["run", "status", "age", "error", "question"], f"runs{f' with status {status}' if status else ''}"
    before: Sequence[RunStatus] | None = None
    while True:
        listed = client.list_runs(status, limit=limit, agent=agent, session_id=session)
        runs = [run async for run in listed if run.requested_at >= (since or 0)]
        rows = []
        for run in runs:
            age, question = age_text(run.requested_at), one_line(run.query)
            rows.append([run.run_id, run.waits or run.status, age, one_line(run.code or ""), question])
        found = frame.table(runs, columns, rows, nouns)
        if not watch:
            return found
        if runs != before:
            OUT.clear()
            found.print(output)
        before = runs
        await asyncio.sleep(_WATCH_S)


@frame.command(runs, "show")
async def show_run(client: Client, run_id: frame.RunId = frame.NEWEST) -> frame.Found:
    """Show a run: its status, question, steps, calls of tools, answer, artifacts and costs."""
    report = await report_of(client, run_id)
    return frame.Found(report, lambda: print_report(report))


@frame.command(schedule)
async def add(
    client: Client,
    question: Annotated[str, typer.Argument(help="What each run is asked.")],
    cron: Annotated[str | None, typer.Option(help='As in "30 2 * * 1-5": on workdays at half past two.')] = None,
    at: Annotated[str | None, typer.Option(help="One time, as in 2026-12-24T18:00:00+01:00.")] = None,
    webhook: Annotated[bool, typer.Option("--webhook", help="Each signed delivery starts a run.")] = False,
    time_zone: Annotated[str | None, typer.Option(help="As in Europe/Berlin; of --cron by default UTC.")] = None,
    missed: Annotated[
        Literal["skip", "run_once"],
        typer.Option(help="Of times that came while no planner was there: no run, or one."),
    ] = "skip",
    name: Annotated[str, typer.Option(help="For people.")] = "",
    session: Annotated[str | None, typer.Option(help="The session of all its runs. Default: each has its own.")] = None,
    agent: frame.Agent = None,
    model: frame.Model = None,
    url: frame.Url = None,
) -> frame.Found:
    """Add a schedule (--cron or --at) or a webhook, and print its next three times, or its address and secret."""
    options = frame.given(cron=cron, at=at, time_zone=time_zone, session_id=session, agent=agent, model=model)
    made = await client.add_schedule(question, webhook=webhook, name=name, missed=missed, **options)
    return frame.Found(made, _printed(made, url))


@frame.command(schedule, "ls")
async def list_schedules(client: Client) -> frame.Found:
    """List schedules and webhooks, the newest first."""
    found, rows = await client.schedules(), []
    for each in found:
        name = one_line(each.name or str(each.run.get("query", "")))
        rows.append([each.schedule_id, next(iter(each.next), ""), _times(each), name])
    return frame.table(found, ["schedule", "next", "times", "name"], rows, "schedules")


@frame.command(schedule, "show")
async def show_schedule(client: Client, schedule: ScheduleId, url: frame.Url = None) -> frame.Found:
    """Show a schedule or webhook: its next three times, its question, its newest run."""
    found = await client.schedule(schedule)
    return frame.Found(found, _printed(found, url))


@frame.command(schedule)
async def remove(client: Client, schedule: ScheduleId) -> None:
    """Remove a schedule or webhook. It starts no further run; those that it has started go on."""
    await client.delete_schedule(schedule)


def _times(schedule: ScheduleView) -> str:
    return " ".join(filter(None, (schedule.cron, schedule.time_zone))) if schedule.cron else schedule.at or "webhook"


def _printed(schedule: ScheduleView, url: str | None) -> Callable[[], None]:
    times = ("times", _times(schedule))
    if (address := schedule.webhook_url) is not None:
        base = httpx.URL(frame.gateway_of(url)[0])
        below = base.path.rstrip("/")  # A gateway that knows it is behind a proxy says it with the proxy's path.
        times = ("address", str(base.join(address if address.startswith((f"{below}/", "http")) else below + address)))
    fields: list[tuple[str, str | None]] = [
        ("schedule", schedule.schedule_id),
        ("name", schedule.name),
        ("question", str(schedule.run.get("query", ""))),
        times,
        *(("next", at) for at in schedule.next),
        ("last", f"{schedule.last} · {schedule.last_run}" if schedule.last_run else None),
    ]
    if isinstance(schedule, ScheduleCreated) and schedule.secret is not None:
        fields.append(("secret", f"{schedule.secret}  (it is not shown again)"))
    return lambda: print_fields(fields, 8)
