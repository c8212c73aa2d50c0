"""Commands on what waits for a person: list it, and decide."""

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from runwire.cli.commands.tasks import print_task
from runwire.cli.frame import RUN, SESSION, Found, Listing, asks, json_object
from runwire.cli.printing import ERR, OUT, program
from runwire.cli.views.pauses import answer_of, name_of, named, print_pause, statuses
from runwire.client import Client, GroupView, OpenPause, TaskView

commands = typer.Typer()
_MAX_SESSIONS_READ = 1000
PAUSE_HELP = "As `runwire approvals` prints it, or the beginning; RUN alone where one pause of it is open."
Pause = Annotated[
    str | None,
    typer.Argument(metavar="RUN/PAUSE", help=f"{PAUSE_HELP} Default: the only one that waits."),
]
Note = Annotated[str, typer.Option(help="A text for the model.")]


@asks(commands, cls=Listing)
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
        runs = list(dict.fromkeys(pause.run_id for pause in (await client.session(session)).pauses))
    else:
        runs = [status.run_id async for status in client.list_runs("running")]
    return [pause for status in await statuses(client, runs) for pause in status.pauses]


async def _results(client: Client, session: str | None) -> list[GroupView | TaskView]:
    """The groups, and the tasks without one, whose results wait for a person."""
    newest = client.sessions(limit=_MAX_SESSIONS_READ)
    sessions = [session] if session else [each.session_id async for each in newest if each.open_decisions]
    found: list[GroupView | TaskView] = []
    for session_id in sessions:
        found += [group for group in await client.groups(session_id) if group.awaits_decision]
        found += [task for task in await client.tasks(session_id) if task.is_held and task.group_id is None]
    return found


@asks(commands)
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


@asks(commands)
async def reject(client: Client, pause: Pause = None, note: Note = "") -> None:
    """Refuse a call, or a question: the model reads that, and the note."""
    await _decide(client, pause, "rejected", lambda found: client.reject(found, note=note))


@asks(commands)
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
