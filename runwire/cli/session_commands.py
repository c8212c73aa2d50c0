"""Commands on conversations: hold one, list them, show one."""

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
    age_text,
    client_of,
    finish,
    one_line,
    print_json,
    print_line,
    print_list,
    print_table,
    visible,
)
from runwire.cli.exit_codes import guarded, program

if TYPE_CHECKING:
    from runwire.client import SessionEntry, SessionStatus


class WhenBusy(StrEnum):
    """What a question does while another run of the session is under way."""

    queue = "queue"
    steer = "steer"
    reject = "reject"
    cancel = "cancel"


def chat(
    session: Annotated[str | None, typer.Option(help="The session to continue. Default: a new one.")] = None,
    agent: Annotated[str | None, typer.Option(help="An entry of the agents file.")] = None,
    model: Annotated[str | None, typer.Option(help="LiteLLM's name of a model.")] = None,
    on_busy: Annotated[
        WhenBusy | None, typer.Option(help="Of a question while another run of the session is under way.")
    ] = None,
    url: Url = None,
    api_key: Key = None,
) -> None:
    """Hold a conversation, with approvals and questions asked in place. Ctrl-C steers or cancels, twice leaves."""
    from contracts.wire.ids import new_id  # noqa: PLC0415, see `client_of`
    from runwire.cli.conversation import Conversation  # noqa: PLC0415

    options: dict[str, Any] = {"agent": agent, "model": model, "on_busy": on_busy.value if on_busy else None}
    given = {name: value for name, value in options.items() if value is not None}
    session_id = session or f"chat-{new_id()[:12]}"

    def work() -> int:
        conversation = Conversation(client_of(url, api_key), session_id, given, Console(emoji=False))
        return conversation.hold(is_new=session is None)

    raise typer.Exit(guarded(work))


def sessions(
    session_id: Annotated[str | None, typer.Argument(help="Show this one. Default: list them.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="How many.")] = 20,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    as_json: Json = False,
) -> None:
    """List sessions, or show one: its runs, its queue, what waits for a person, its summary and context."""

    async def work() -> int:
        is_json = as_json or output is not Output.text
        async with client_of(url, api_key) as client:
            if session_id is None:
                found = [entry async for entry in client.sessions(limit=limit)]
                columns = ["session", "runs", "pauses", "tasks", "queued", "changed", "user"]
                print_list(found, columns, _row, "sessions", is_json=is_json)
                return 0
            shown = await client.session(session_id)
        if is_json:
            print_json(shown.model_dump(mode="json"))
        else:
            _print_session(shown)
        return 0

    finish(work())


def _row(entry: "SessionEntry") -> list[str]:
    counts = [str(count) for count in (entry.runs, entry.open_pauses, entry.open_tasks, entry.queued_runs)]
    return [one_line(entry.session_id), *counts, age_text(entry.updated_at), one_line(entry.user_id or "")]


def _print_session(session: "SessionStatus") -> None:
    console = Console(emoji=False)
    lines = [
        ("session", session.session_id),
        ("user", session.user_id),
        ("changed", f"{age_text(session.updated_at)} ago · {session.runs} runs"),
        ("running", session.current_run),
        *(("queued", run) for run in session.queue),
        *(
            ("waits", f"{pause.reason} · {one_line(pause.tool or pause.title)} · {pause.run_id}")
            for pause in session.pauses
        ),
        *(
            ("task", f"{one_line(task.name or task.tool or task.query)} · {task.task_id}")
            for task in session.tasks
            if task.status == "running"
        ),
        *(("context", one_line(f"{name} = {value!r}")) for name, value in session.context.items()),
        ("summary", session.summary),
    ]
    for name, text in lines:
        if text:
            print_line(console, f"[bold]{name:<9}[/bold] {escape(visible(text))}")
    rows = [
        [
            run.run_id,
            run.status,
            age_text(run.requested_at),
            "a report" if run.cause == "report" else one_line(run.query),
        ]
        for run in session.recent_runs
    ]
    if rows:
        print_table([["run", "status", "age", "question"], *rows])
    if session.pauses or session.open_decisions:
        print_line(console, f"[dim]{program()} approvals --session shows what waits[/dim]")
