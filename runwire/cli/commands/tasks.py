"""Commands on background tasks and groups: list them, show one, end it, decide about what it found."""

from typing import Annotated

import typer

from contracts.sessions.tasks import TaskStatusName
from runwire.cli.frame import NEWEST, SESSION, Found, Noun, asks, table
from runwire.cli.printing import age_text, one_line, print_fields, time_text
from runwire.client import Client, GroupView, TaskView

commands = typer.Typer()
tasks = typer.Typer(cls=Noun)
commands.add_typer(tasks, name="tasks")
Id = Annotated[str, typer.Argument(metavar="ID", help="As `runwire tasks ls` prints it.")]
IsGroup = Annotated[bool, typer.Option("--group", help="ID is that of a group.")]
Session = Annotated[str | None, typer.Option(help="Only needed once the task's run is deleted.")]


@asks(tasks, "ls")
async def list_tasks(
    client: Client,
    session: Annotated[str, typer.Option(help="Whose tasks."), SESSION] = NEWEST,
    groups: Annotated[bool, typer.Option("--groups", help="List groups instead of tasks.")] = False,
    status: Annotated[TaskStatusName | None, typer.Option(help="Only tasks in this state.")] = None,
) -> Found:
    """List the tasks of a session, or its groups, the oldest first."""
    if groups:
        columns = ["group", "status", "tasks", "waits for", "name"]
        return table(await client.groups(session), columns, _group_row, "groups")
    return table(await client.tasks(session, status), ["task", "status", "age", "group", "name"], _task_row, "tasks")


def _task_row(task: TaskView) -> list[str]:
    name = one_line(" · ".join(dict.fromkeys(filter(None, (task.name, task.tool or task.query)))))
    return [task.task_id, task.status, age_text(task.requested_at), task.group_id or "", name]


def _group_row(group: GroupView) -> list[str]:
    waits_for = "a person" if group.awaits_decision else ""
    return [group.group_id, group.status, str(len(group.tasks)), waits_for, one_line(group.name)]


@asks(tasks)
async def show(client: Client, thing: Id, is_group: IsGroup = False, session: Session = None) -> Found:
    """Show a task with what it found, or a group."""
    found = await (client.group if is_group else client.task)(thing, session_id=session)
    return Found(found, lambda: print_task(found))


@asks(tasks)
async def cancel(client: Client, thing: Id, is_group: IsGroup = False, session: Session = None) -> None:
    """End the run of a task, or the runs of a group's tasks."""
    print_task(await (client.cancel_group if is_group else client.cancel_task)(thing, session_id=session))


@asks(tasks)
async def seal(client: Client, group_id: Id, session: Session = None) -> None:
    """Let no further task join a group: it ends when all its tasks have ended."""
    print_task(await client.seal_group(group_id, session_id=session))


@asks(tasks)
async def apply(client: Client, thing: Id, is_group: IsGroup = False, session: Session = None) -> None:
    """Show later runs of the session what a task or group found whose results wait for a person."""
    print_task(await (client.apply_group if is_group else client.apply_task)(thing, session_id=session))


@asks(tasks)
async def reject(client: Client, thing: Id, is_group: IsGroup = False, session: Session = None) -> None:
    """Show no run what a task or group found whose results wait for a person."""
    print_task(await (client.reject_group if is_group else client.reject_task)(thing, session_id=session))


def print_task(found: TaskView | GroupView) -> None:
    """Print what is known of a task or group, one field per line."""

    def text(name: str, value: object) -> str:
        if isinstance(value, int) and name.endswith("_at"):
            return time_text(value)
        return ", ".join(value) if isinstance(value, list) else str(value)

    print_fields([(name, text(name, value)) for name, value in found.model_dump(exclude_defaults=True).items()], 13)
