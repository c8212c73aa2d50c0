"""Commands on what waits for a person: list it, and decide."""

import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from runwire.cli.common import Format, Json, Key, Output, Url, client_of, finish, print_json, print_line
from runwire.cli.exit_codes import print_error, program
from runwire.cli.open_pauses import answer_of, name_of, named, print_pause
from runwire.cli.task_commands import print_fields
from runwire.errors import NotFound

if TYPE_CHECKING:
    from runwire import Client
    from runwire.client import GroupView, OpenPause, TaskView

_MAX_ASKED_AT_ONCE = 16
_MAX_SESSIONS_READ = 1000
Pause = Annotated[
    str,
    typer.Argument(metavar="RUN/PAUSE", help="As `runwire approvals` prints it; RUN alone where one pause is open."),
]
Note = Annotated[str, typer.Option(help="A text for the model.")]


def approvals(
    run: Annotated[str | None, typer.Option(help="Of this run only.")] = None,
    session: Annotated[str | None, typer.Option(help="Of this session only.")] = None,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    as_json: Json = False,
) -> None:
    """List what waits for a person: calls to approve, questions of tools and agents, and results of background tasks.

    Results wait for `runwire tasks apply` or `reject`. They are listed for the newest 1,000 sessions.
    """

    async def work() -> int:
        async with client_of(url, api_key) as client:
            found = await _open_pauses(client, run, session)
            held = await _held(client, session) if run is None else []
        if as_json or output is not Output.text:
            print_json([each.model_dump(mode="json") for each in (*found, *held)])
        elif found or held:
            _print_all(found, held)
        else:
            print_error("nothing waits for a person")
        return 0

    finish(work())


async def _open_pauses(client: "Client", run: str | None, session: str | None) -> "list[OpenPause]":
    import asyncio  # noqa: PLC0415, see `client_of`

    if run is not None:
        return await client.pauses(run)
    slots = asyncio.Semaphore(_MAX_ASKED_AT_ONCE)

    async def of_run(run_id: str) -> "list[OpenPause]":
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


async def _held(client: "Client", session: str | None) -> "list[GroupView | TaskView]":
    """The groups, and the tasks without one, whose results wait for a person."""
    newest = client.sessions(limit=_MAX_SESSIONS_READ)
    sessions = [session] if session else [each.session_id async for each in newest if each.open_decisions]
    found: list[GroupView | TaskView] = []
    for session_id in sessions:
        found += [group for group in await client.groups(session_id) if group.awaits_decision]
        tasks = await client.tasks(session_id, "succeeded")
        found += [task for task in tasks if task.is_held and task.group_id is None]
    return found


def _print_all(pauses: "list[OpenPause]", held: "list[GroupView | TaskView]") -> None:
    console = Console(emoji=False)
    for pause in pauses:
        print_line(console, f"[bold]{pause.run_id}/{name_of(pause.pause_id, pause.revision)}[/bold]")
        print_pause(pause, console)
    for each in held:
        print_fields(each)
    if pauses:
        print_line(console, f"[dim]{program()} approve, reject or answer RUN/PAUSE decides[/dim]")
    if held:
        print_line(console, f"[dim]{program()} tasks apply or reject ID (groups: --group) decides about results[/dim]")


def approve(
    pause: Pause,
    args: Annotated[
        str | None, typer.Option(help="Other arguments for the call, all of them, as a JSON object.")
    ] = None,
    note: Note = "",
    url: Url = None,
    api_key: Key = None,
) -> None:
    """Let a call that waits be executed, as `approvals` shows it or with other arguments."""
    if args is None:
        _decide(url, api_key, pause, "approved", lambda client, found: client.approve(found, note=note))
        return
    try:
        edited = json.loads(args)
    except ValueError as error:
        raise typer.BadParameter(f"it is no JSON: {error}", param_hint="--args") from None
    if not isinstance(edited, dict):
        raise typer.BadParameter("it is no JSON object", param_hint="--args")
    _decide(url, api_key, pause, "approved", lambda client, found: client.edit(found, edited, note=note), edited)


def reject(pause: Pause, note: Note = "", url: Url = None, api_key: Key = None) -> None:
    """Refuse a call, or a question: the model reads that, and the note."""
    _decide(url, api_key, pause, "rejected", lambda client, found: client.reject(found, note=note))


def answer(
    pause: Pause,
    value: Annotated[str, typer.Argument(metavar="ANSWER", help="Text, or JSON where the question wants that.")],
    note: Note = "",
    url: Url = None,
    api_key: Key = None,
) -> None:
    """Answer a question of a tool or agent."""

    def send(client: "Client", found: "OpenPause") -> Awaitable[None]:
        try:
            return client.answer(found, answer_of(found, value), note=note)
        except ValueError as error:
            text = f"the question wants JSON, see `approvals`: {error}"
            raise typer.BadParameter(text, param_hint="ANSWER") from None

    _decide(url, api_key, pause, "answered", send)


def _decide(
    url: str | None,
    api_key: str | None,
    name: str,
    done: str,
    send: "Callable[[Client, OpenPause], Awaitable[None]]",
    arguments: dict[str, Any] | None = None,
) -> None:
    """Find the pause, send the decision, and say on stderr what it was about."""
    run_id, _, wanted = name.partition("/")

    async def work() -> int:
        async with client_of(url, api_key) as client:
            found = named(await client.pauses(run_id), wanted)
            await send(client, found)
        if arguments is not None:
            found = found.model_copy(update={"arguments": arguments})
        sys.stderr.write(f"{done}:\n")
        print_pause(found, Console(stderr=True, emoji=False))
        return 0

    finish(work())
