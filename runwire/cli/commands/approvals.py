"""Commands on what waits for a person, and on background tasks: list it, decide, end it."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from contracts.sessions.tasks import TaskStatusName
from runwire.cli.frame import NEWEST, RUN, SESSION, Found, Listing, Noun, command, json_object, table
from runwire.cli.pauses import answer_of, name_of, named, print_pause
from runwire.cli.printing import ERR, OUT, age_text, one_line, print_fields, program, time_text
from runwire.client import Client, GroupView, OpenPause, TaskView

commands = typer.Typer()
tasks = typer.Typer(cls=Noun)
commands.add_typer(tasks, name="tasks")
Id = Annotated[str, typer.Argument(metavar="ID", help="As `runwire tasks ls` prints it.")]
IsGroup = Annotated[bool, typer.Option("--group", help="ID is that of a group.")]
Session = Annotated[str | None, typer.Option(help="Only needed once the task's run is deleted.")]
_MAX_SESSIONS_READ = 1000
PAUSE_HELP = "As `runwire approvals` prints it, or the beginning; RUN alone where one pause of it is open."
Pause = Annotated[
    str | None,
    typer.Argument(metavar="RUN/PAUSE", help=f"{PAUSE_HELP} Default: the only one that waits."),
]
Note = Annotated[str, typer.Option(help="A text for the model.")]


@command(commands, cls=Listing)
async def approvals(
    client: Client,
    run: Annotated[str | None, typer.Option(help="Of this run only."), RUN] = None,
    session: Annotated[str | None, typer.Option(help="Of this session only."), SESSION] = None,
) -> Found:
    """List what waits for a person: calls to approve, questions of tools and agents, and results of background tasks.

    Results wait for `runwire tasks apply` or `reject`. They are listed for the newest 1,000 sessions.
    """
    pauses = await _open_pauses(client, run, session)
    results = await _results(client, session) if run is None else []

    def show() -> None:
        for pause in pauses:
            OUT.print(f"[bold]{pause.run_id}/{name_of(pause.pause_id, pause.revision)}[/bold]")
            print_pause(pause)
        for each in results:
            print_task(each)
        if pauses:
            OUT.print(f"[dim]{program()} approve, reject or answer RUN/PAUSE decides[/dim]")
        if results:
            OUT.print(f"[dim]{program()} tasks apply or reject ID (groups: --group) decides about results[/dim]")
        if not pauses and not results:
            ERR.print("[dim]nothing waits for a person[/dim]")

    return Found([*pauses, *results], show)


async def _open_pauses(client: Client, run: str | None, session: str | None) -> list[OpenPause]:
    if run is not None:
        return await client.pauses(run)
    if session is not None:
        return (await client.session(session)).pauses
    waiting = client.list_runs(waits=True)
    # Those of a task are also those of a run that waits for it.
    return list({pause.pause_id: pause async for run in waiting for pause in run.pauses}.values())


async def _results(client: Client, session: str | None) -> list[GroupView | TaskView]:
    """The groups, and the tasks without one, whose results wait for a person."""
    newest = client.sessions(limit=_MAX_SESSIONS_READ)
    sessions = [session] if session else [each.session_id async for each in newest if each.open_decisions]
    found: list[GroupView | TaskView] = []
    for session_id in sessions:
        found += [group for group in await client.groups(session_id) if group.awaits_decision]
        found += [task for task in await client.tasks(session_id) if task.is_held and task.group_id is None]
    return found


@command(commands)
async def approve(
    client: Client,
    pause: Pause = None,
    args: Annotated[
        str | None, typer.Option(help="Other arguments for the call, all of them, as a JSON object.")
    ] = None,
    note: Note = "",
) -> None:
    """Let a call that waits be executed, as `approvals` shows it or with other arguments."""
    if args is None:
        await _decide(client, pause, "approved", lambda found: client.approve(found, note=note))
        return
    edited = json_object(args, "--args")
    await _decide(client, pause, "approved", lambda found: client.edit(found, edited, note=note), edited)


@command(commands, "reject")
async def reject_call(client: Client, pause: Pause = None, note: Note = "") -> None:
    """Refuse a call, or a question: the model reads that, and the note."""
    await _decide(client, pause, "rejected", lambda found: client.reject(found, note=note))


@command(commands)
async def answer(
    client: Client,
    pause: Annotated[str, typer.Argument(metavar="RUN/PAUSE", help=PAUSE_HELP)],
    value: Annotated[str, typer.Argument(metavar="ANSWER", help="Text, or JSON where the question wants that.")],
    note: Note = "",
) -> None:
    """Answer a question of a tool or agent."""

    def send(found: OpenPause) -> Awaitable[None]:
        try:
            return client.answer(found, answer_of(found, value), note=note)
        except ValueError as error:
            text = f"the question wants JSON, see `approvals`: {error}"
            raise typer.BadParameter(text, param_hint="ANSWER") from None

    await _decide(client, pause, "answered", send)


async def _decide(
    client: Client,
    name: str | None,
    done: str,
    send: Callable[[OpenPause], Awaitable[None]],
    arguments: dict[str, Any] | None = None,
) -> None:
    """Find the pause, send the decision, and say on stderr what it was about."""
    run_id, _, wanted = (name or "").partition("/")
    of_run = await RUN.whole(client, run_id) if name is not None else None
    waiting = await _open_pauses(client, of_run, None)
    if name is None and len(waiting) > 1:
        several = ", ".join(f"{pause.run_id}/{name_of(pause.pause_id, pause.revision)}" for pause in waiting)
        raise typer.BadParameter(f"{len(waiting)} wait, name one: {several}", param_hint="RUN/PAUSE")
    found = named(waiting, wanted)
    if name is None:
        # Something else may wait by now than what the user has read about.
        print_pause(found, ERR)
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"name it: {found.run_id}/{name_of(found.pause_id, found.revision)}")
        typer.confirm("Is it this one?", abort=True, err=True)
    await send(found)
    sys.stderr.write(f"{done}:\n")
    print_pause(found if arguments is None else found.model_copy(update={"arguments": arguments}), ERR)


@command(tasks, "ls")
async def list_tasks(
    client: Client,
    session: Annotated[str, typer.Option(help="Whose tasks."), SESSION] = NEWEST,
    groups: Annotated[bool, typer.Option("--groups", help="List groups instead of tasks.")] = False,
    status: Annotated[TaskStatusName | None, typer.Option(help="Only tasks in this state.")] = None,
) -> Found:
    """List the tasks of a session, or its groups, the oldest first."""
    if groups:
        of_session, rows = await client.groups(session), []
        for group in of_session:
            waits_for = "a person" if group.awaits_decision else ""
            rows.append([group.group_id, group.status, str(len(group.tasks)), waits_for, one_line(group.name)])
        return table(of_session, ["group", "status", "tasks", "waits for", "name"], rows, "groups")
    found, rows = await client.tasks(session, status), []
    for task in found:
        name = one_line(" · ".join(dict.fromkeys(filter(None, (task.name, task.tool or task.query)))))
        rows.append([task.task_id, task.status, age_text(task.requested_at), task.group_id or "", name])
    return table(found, ["task", "status", "age", "group", "name"], rows, "tasks")


@command(tasks)
async def show(client: Client, thing: Id, is_group: IsGroup = False, session: Session = None) -> Found:
    """Show a task with what it found, or a group."""
    found = await (client.group if is_group else client.task)(thing, session_id=session)
    return Found(found, lambda: print_task(found))


@command(tasks)
async def cancel(client: Client, thing: Id, is_group: IsGroup = False, session: Session = None) -> None:
    """End the run of a task, or the runs of a group's tasks."""
    print_task(await (client.cancel_group if is_group else client.cancel_task)(thing, session_id=session))


@command(tasks)
async def seal(client: Client, group_id: Id, session: Session = None) -> None:
    """Let no further task join a group: it ends when all its tasks have ended."""
    print_task(await client.seal_group(group_id, session_id=session))


@command(tasks)
async def apply(client: Client, thing: Id, is_group: IsGroup = False, session: Session = None) -> None:
    """Show later runs of the session what a task or group found whose results wait for a person."""
    print_task(await (client.apply_group if is_group else client.apply_task)(thing, session_id=session))


@command(tasks)
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
