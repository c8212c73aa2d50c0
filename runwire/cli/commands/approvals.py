"""Commands on what waits for a person: list it, and decide."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from runwire.cli.commands.tasks import print_task
from runwire.cli.frame import Found, asks, json_object
from runwire.cli.printing import ERR, OUT, print_error, program
from runwire.cli.views.pauses import answer_of, name_of, named, print_pause
from runwire.client import Client, GroupView, OpenPause, TaskView
from runwire.errors import NotFound

commands = typer.Typer()
_MAX_ASKED_AT_ONCE = 16
_MAX_SESSIONS_READ = 1000
Pause = Annotated[
    str,
    typer.Argument(metavar="RUN/PAUSE", help="As `runwire approvals` prints it; RUN alone where one pause is open."),
]
Note = Annotated[str, typer.Option(help="A text for the model.")]


@asks(commands)
async def approvals(
    client: Client,
    run: Annotated[str | None, typer.Option(help="Of this run only.")] = None,
    session: Annotated[str | None, typer.Option(help="Of this session only.")] = None,
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
            print_error("nothing waits for a person")

    return Found([*pauses, *results], show)


async def _open_pauses(client: Client, run: str | None, session: str | None) -> list[OpenPause]:
    if run is not None:
        return await client.pauses(run)
    slots = asyncio.Semaphore(_MAX_ASKED_AT_ONCE)

    async def of_run(run_id: str) -> list[OpenPause]:
        async with slots:
            try:
                return await client.pauses(run_id)
            except NotFound:  # It was deleted meanwhile.
                return []

    if session is not None:
        runs = list(dict.fromkeys(pause.run_id for pause in (await client.session(session)).pauses))
    else:
        runs = [status.run_id async for status in client.list_runs("running")]
    return [pause for pauses in await asyncio.gather(*map(of_run, runs)) for pause in pauses]


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
    pause: Pause,
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
async def reject(client: Client, pause: Pause, note: Note = "") -> None:
    """Refuse a call, or a question: the model reads that, and the note."""
    await _decide(client, pause, "rejected", lambda found: client.reject(found, note=note))


@asks(commands)
async def answer(
    client: Client,
    pause: Pause,
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
    name: str,
    done: str,
    send: Callable[[OpenPause], Awaitable[None]],
    arguments: dict[str, Any] | None = None,
) -> None:
    """Find the pause, send the decision, and say on stderr what it was about."""
    run_id, _, wanted = name.partition("/")
    found = named(await client.pauses(run_id), wanted)
    await send(found)
    sys.stderr.write(f"{done}:\n")
    print_pause(found if arguments is None else found.model_copy(update={"arguments": arguments}), ERR)
