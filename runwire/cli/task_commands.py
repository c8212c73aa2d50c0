"""Commands on background tasks and groups: list them, show one, end it, decide about what it found."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from runwire.cli.common import (
    Format,
    Json,
    Key,
    Output,
    Url,
    age_text,
    client_of,
    finish,
    one_line,
    print_json,
    print_line,
    print_list,
    visible,
)

if TYPE_CHECKING:
    from runwire.client import Client, GroupView, TaskView

app = typer.Typer(no_args_is_help=True, help="Background tasks of a session: list them, end them, decide about them.")


class Status(StrEnum):
    """What a task may be."""

    running = "running"
    succeeded = "succeeded"
    failed = "failed"
    cancelled = "cancelled"


Id = Annotated[str, typer.Argument(metavar="ID", help="As `runwire tasks list` prints it.")]
IsGroup = Annotated[bool, typer.Option("--group", help="ID is that of a group.")]
Session = Annotated[str | None, typer.Option(help="Only needed once the task's run is deleted.")]


@app.command("list")
def list_tasks(
    session: Annotated[str, typer.Option(help="Whose tasks.")],
    groups: Annotated[bool, typer.Option("--groups", help="List groups instead of tasks.")] = False,
    status: Annotated[Status | None, typer.Option(help="Only tasks in this state.")] = None,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    as_json: Json = False,
) -> None:
    """List the tasks of a session, or its groups, the oldest first."""
    is_json = as_json or output is not Output.text

    async def work() -> int:
        async with client_of(url, api_key) as client:
            if groups:
                columns = ["group", "status", "tasks", "waits for", "name"]
                print_list(await client.groups(session), columns, _group_row, "groups", is_json=is_json)
            else:
                found = await client.tasks(session, status.value if status else None)
                print_list(found, ["task", "status", "age", "group", "name"], _task_row, "tasks", is_json=is_json)
        return 0

    finish(work())


def _task_row(task: "TaskView") -> list[str]:
    name = one_line(" · ".join(dict.fromkeys(filter(None, (task.name, task.tool or task.query)))))
    return [task.task_id, task.status, age_text(task.requested_at), task.group_id or "", name]


def _group_row(group: "GroupView") -> list[str]:
    waits_for = "a person" if group.awaits_decision else ""
    return [group.group_id, group.status, str(len(group.tasks)), waits_for, one_line(group.name)]


@app.command()
def show(
    thing: Id,
    is_group: IsGroup = False,
    session: Session = None,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    as_json: Json = False,
) -> None:
    """Show a task with what it found, or a group."""

    async def asked(client: "Client") -> "TaskView | GroupView":
        return await (client.group if is_group else client.task)(thing, session_id=session)

    _print(url, api_key, asked, is_json=as_json or output is not Output.text)


@app.command()
def cancel(thing: Id, is_group: IsGroup = False, session: Session = None, url: Url = None, api_key: Key = None) -> None:
    """End the run of a task, or the runs of a group's tasks."""

    async def asked(client: "Client") -> "TaskView | GroupView":
        return await (client.cancel_group if is_group else client.cancel_task)(thing, session_id=session)

    _print(url, api_key, asked)


@app.command()
def seal(group_id: Id, session: Session = None, url: Url = None, api_key: Key = None) -> None:
    """Let no further task join a group: it ends when all its tasks have ended."""
    _print(url, api_key, lambda client: client.seal_group(group_id, session_id=session))


@app.command()
def apply(thing: Id, is_group: IsGroup = False, session: Session = None, url: Url = None, api_key: Key = None) -> None:
    """Show later runs of the session what a task or group found whose results wait for a person."""

    async def asked(client: "Client") -> "TaskView | GroupView":
        return await (client.apply_group if is_group else client.apply_task)(thing, session_id=session)

    _print(url, api_key, asked)


@app.command()
def reject(thing: Id, is_group: IsGroup = False, session: Session = None, url: Url = None, api_key: Key = None) -> None:
    """Show no run what a task or group found whose results wait for a person."""

    async def asked(client: "Client") -> "TaskView | GroupView":
        return await (client.reject_group if is_group else client.reject_task)(thing, session_id=session)

    _print(url, api_key, asked)


def _print(
    url: str | None,
    api_key: str | None,
    asked: "Callable[[Client], Awaitable[TaskView | GroupView]]",
    *,
    is_json: bool = False,
) -> None:
    async def work() -> int:
        async with client_of(url, api_key) as client:
            found = await asked(client)
        if is_json:
            print_json(found.model_dump(mode="json"))
        else:
            print_fields(found)
        return 0

    finish(work())


def print_fields(found: "TaskView | GroupView") -> None:
    """Print what is known of a task or group, one field per line."""
    console = Console(emoji=False)
    for name, value in found.model_dump(exclude_defaults=True).items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        if name.endswith("_at"):
            text = f"{datetime.fromtimestamp(value / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
        print_line(console, f"[bold]{name:<13}[/bold] {escape(visible(text))}")
