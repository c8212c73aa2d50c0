"""Commands on schedules and webhooks: add one, list them, show one, remove one."""

from collections.abc import Callable
from typing import Annotated, Literal

import httpx
import typer

from runwire.cli.frame import Agent, Found, Model, Noun, Url, asks, gateway_of, given, table
from runwire.cli.printing import one_line, print_fields
from runwire.client import Client, ScheduleCreated, ScheduleView

commands = typer.Typer()
schedule = typer.Typer(cls=Noun)
commands.add_typer(schedule, name="schedule")
Id = Annotated[str, typer.Argument(metavar="ID", help="As `runwire schedule ls` prints it.")]


@asks(schedule)
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
    agent: Agent = None,
    model: Model = None,
    url: Url = None,
) -> Found:
    """Add a schedule (--cron or --at) or a webhook, and print its next three times, or its address and secret."""
    options = given(cron=cron, at=at, time_zone=time_zone, session_id=session, agent=agent, model=model)
    made = await client.add_schedule(question, webhook=webhook, name=name, missed=missed, **options)
    return Found(made, _printed(made, url))


@asks(schedule, "ls")
async def list_schedules(client: Client) -> Found:
    """List schedules and webhooks, the newest first."""
    found, rows = await client.schedules(), []
    for each in found:
        name = one_line(each.name or str(each.run.get("query", "")))
        rows.append([each.schedule_id, next(iter(each.next), ""), _times(each), name])
    return table(found, ["schedule", "next", "times", "name"], rows, "schedules")


@asks(schedule)
async def show(client: Client, schedule: Id, url: Url = None) -> Found:
    """Show a schedule or webhook: its next three times, its question, its newest run."""
    found = await client.schedule(schedule)
    return Found(found, _printed(found, url))


@asks(schedule)
async def remove(client: Client, schedule: Id) -> None:
    """Remove a schedule or webhook. It starts no further run; those that it has started go on."""
    await client.delete_schedule(schedule)


def _times(schedule: ScheduleView) -> str:
    return " ".join(filter(None, (schedule.cron, schedule.time_zone))) if schedule.cron else schedule.at or "webhook"


def _printed(schedule: ScheduleView, url: str | None) -> Callable[[], None]:
    times = ("times", _times(schedule))
    if (address := schedule.webhook_url) is not None:
        base = httpx.URL(gateway_of(url)[0])
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
