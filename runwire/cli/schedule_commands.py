"""Commands on schedules and webhooks: add one, list them, show one, remove one."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from runwire.cli.common import (
    Format,
    Json,
    Key,
    Output,
    Url,
    client_of,
    finish,
    gateway_url,
    one_line,
    print_json,
    print_line,
    print_list,
    visible,
)

if TYPE_CHECKING:
    from runwire.client import ScheduleView

app = typer.Typer(no_args_is_help=True, help="Schedules and webhooks, which start runs.")
Id = Annotated[str, typer.Argument(metavar="ID", help="As `runwire schedule list` prints it.")]


class Missed(StrEnum):
    """What happens to times that came while no planner was there."""

    skip = "skip"
    run_once = "run_once"


@app.command()
def add(
    question: Annotated[str, typer.Argument(help="What each run is asked.")],
    cron: Annotated[str | None, typer.Option(help='As in "30 2 * * 1-5": on workdays at half past two.')] = None,
    at: Annotated[str | None, typer.Option(help="One time, as in 2026-12-24T18:00:00+01:00.")] = None,
    webhook: Annotated[bool, typer.Option("--webhook", help="Each signed delivery starts a run.")] = False,
    time_zone: Annotated[str | None, typer.Option(help="As in Europe/Berlin; of --cron by default UTC.")] = None,
    missed: Annotated[
        Missed, typer.Option(help="Of times that came while no planner was there: no run, or one.")
    ] = Missed.skip,
    name: Annotated[str, typer.Option(help="For people.")] = "",
    session: Annotated[str | None, typer.Option(help="The session of all its runs. Default: each has its own.")] = None,
    agent: Annotated[str | None, typer.Option(help="An entry of the agents file.")] = None,
    model: Annotated[str | None, typer.Option(help="LiteLLM's name of a model.")] = None,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    as_json: Json = False,
) -> None:
    """Add a schedule (--cron or --at) or a webhook, and print its next three times, or its address and secret."""
    options: dict[str, Any] = {"cron": cron, "at": at, "time_zone": time_zone}
    options |= {"session_id": session, "agent": agent, "model": model}
    given = {option: value for option, value in options.items() if value is not None}

    async def work() -> int:
        async with client_of(url, api_key) as client:
            made = await client.add_schedule(question, webhook=webhook, name=name, missed=missed.value, **given)
        if as_json or output is not Output.text:
            print_json(made.model_dump(mode="json"))
            return 0
        _print(made, url)
        if made.secret is not None:
            _line("secret", f"{made.secret}  (it is not shown again)")
        return 0

    finish(work())


@app.command("list")
def list_schedules(url: Url = None, api_key: Key = None, output: Format = Output.text, as_json: Json = False) -> None:
    """List schedules and webhooks, the newest first."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            found = await client.schedules()
        columns = ["schedule", "next", "times", "name"]
        print_list(found, columns, _row, "schedules", is_json=as_json or output is not Output.text)
        return 0

    finish(work())


@app.command()
def show(
    schedule: Id, url: Url = None, api_key: Key = None, output: Format = Output.text, as_json: Json = False
) -> None:
    """Show a schedule or webhook: its next three times, its question, its newest run."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            found = await client.schedule(schedule)
        if as_json or output is not Output.text:
            print_json(found.model_dump(mode="json"))
        else:
            _print(found, url)
        return 0

    finish(work())


@app.command()
def remove(schedule: Id, url: Url = None, api_key: Key = None) -> None:
    """Remove a schedule or webhook. It starts no further run; those that it has started go on."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            await client.delete_schedule(schedule)
        return 0

    finish(work())


def _row(schedule: "ScheduleView") -> list[str]:
    name = one_line(schedule.name or str(schedule.run.get("query", "")))
    return [schedule.schedule_id, next(iter(schedule.next), ""), _times(schedule), name]


def _times(schedule: "ScheduleView") -> str:
    return " ".join(filter(None, (schedule.cron, schedule.time_zone))) if schedule.cron else schedule.at or "webhook"


def _print(schedule: "ScheduleView", url: str | None) -> None:
    _line("schedule", schedule.schedule_id)
    if schedule.name:
        _line("name", schedule.name)
    _line("question", str(schedule.run.get("query", "")))
    if schedule.webhook_url is not None:
        _line("address", gateway_url(url).rstrip("/") + schedule.webhook_url)
    else:
        _line("times", _times(schedule))
    for at in schedule.next:
        _line("next", at)
    if schedule.last_run is not None:
        _line("last", f"{schedule.last} · {schedule.last_run}")


def _line(name: str, text: str) -> None:
    print_line(Console(emoji=False), f"[bold]{name:<8}[/bold] {escape(visible(text))}")
