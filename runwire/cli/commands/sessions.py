"""Commands on conversations: hold one, list them, show one."""

from typing import Annotated, Literal

import typer

from contracts.wire.names import new_id
from runwire.cli import frame
from runwire.cli.conversation import Conversation
from runwire.cli.pauses import print_proposal
from runwire.cli.printing import OUT, age_text, end, one_line, print_fields, print_table, program
from runwire.client import Client, ProposalView, SessionStatus

commands = typer.Typer()
proposals = typer.Typer(cls=frame.Noun)
commands.add_typer(proposals, name="proposals")
Id = Annotated[str, typer.Argument(metavar="ID", help="As `runwire proposals ls` prints it.")]


@commands.command()
def chat(
    session: Annotated[str | None, typer.Option(help="The session to continue. Default: a new one.")] = None,
    agent: frame.Agent = None,
    model: frame.Model = None,
    on_busy: Annotated[
        Literal["queue", "steer", "reject", "cancel"] | None,
        typer.Option(help="Of a question while another run of the session is under way."),
    ] = None,
    page: Annotated[
        str | None, typer.Option(help="The page that you are on, such as table_view; a tab as in table_view/rows.")
    ] = None,
    table_id: Annotated[
        str | None, typer.Option("--table", metavar="ID", help="Of the page: the table that it shows.")
    ] = None,
    row: Annotated[list[int] | None, typer.Option(help="Of the page: a selected row; may be repeated.")] = None,
    url: frame.Url = None,
    api_key: frame.Key = None,
) -> None:
    """Hold a conversation, with approvals and questions asked in place. Ctrl-C steers or cancels, twice leaves."""
    options = frame.given(agent=agent, model=model, on_busy=on_busy)
    if page is not None:
        name, tab, subtab = [*page.split("/", 2), None, None][:3]
        options["page"] = frame.given(name=name, tab=tab, subtab=subtab, table_id=table_id, selection=row)
    elif table_id is not None or row is not None:
        raise typer.BadParameter("say on which page: --page table_view", param_hint="--table")

    def hold() -> int:
        conversation = Conversation(frame.client_of(url, api_key), session or f"chat-{new_id()[:12]}", options)
        return conversation.hold(is_new=session is None)

    end(hold)


@frame.command(commands, cls=frame.Listing)
async def sessions(
    client: Client,
    session_id: Annotated[
        str | None, typer.Argument(help="Show it; newest is one. Default: list all."), frame.SESSION
    ] = None,
    limit: frame.Limit = 20,
) -> frame.Found:
    """List sessions, or show one: its runs, its queue, what waits for a person, its summary and context."""
    if session_id is not None:
        session = await client.session(session_id)
        return frame.Found(session, lambda: _print(session))
    found, rows = [entry async for entry in client.sessions(limit=limit)], []
    for each in found:
        counts = map(str, (each.runs, each.open_pauses, each.open_tasks, each.queued_runs))
        rows.append([one_line(each.session_id), *counts, age_text(each.updated_at), one_line(each.user_id or "")])
    return frame.table(found, ["session", "runs", "pauses", "tasks", "queued", "changed", "user"], rows, "sessions")


def _print(session: SessionStatus) -> None:
    pauses = [f"{pause.reason} · {one_line(pause.tool or pause.title)} · {pause.run_id}" for pause in session.pauses]
    running = [task for task in session.tasks if task.status == "running"]
    tasks = [f"{one_line(task.name or task.tool or task.query)} · {task.task_id}" for task in running]
    fields: list[tuple[str, str | None]] = [
        ("session", session.session_id),
        ("user", session.user_id),
        ("changed", f"{age_text(session.updated_at)} ago · {session.runs} runs"),
        ("running", session.current_run),
        *(("queued", run) for run in session.queue),
        *(("waits", pause) for pause in pauses),
        *(("task", task) for task in tasks),
        *(("context", one_line(f"{name} = {value!r}")) for name, value in session.context.items()),
        ("summary", session.summary),
    ]
    print_fields(fields, 9)
    rows = []
    for run in session.recent_runs:
        question = one_line(run.query) if run.cause != "report" else "a report"
        rows.append([run.run_id, run.status, age_text(run.requested_at), question])
    if rows:
        print_table([["run", "status", "age", "question"], *rows])
    if session.pauses or session.open_decisions:
        OUT.print(f"[dim]{program()} approvals --session shows what waits[/dim]")


@frame.command(proposals, "ls")
async def list_proposals(
    client: Client, session: Annotated[str, typer.Option(help="Whose proposals."), frame.SESSION] = frame.NEWEST
) -> frame.Found:
    """List the proposals of a session, the newest first."""
    found = (await client.session(session)).proposals
    rows = [[each.proposal_id, each.state, each.kind, each.table_id or "", one_line(each.summary)] for each in found]
    return frame.table(found, ["proposal", "state", "kind", "table", "summary"], rows, "proposals")


@frame.command(proposals)
async def show(client: Client, proposal_id: Id) -> frame.Found:
    """Show a proposal: its operations, and what would come of each now, or came of it."""
    return _proposal(await client.proposal(proposal_id))


@frame.command(proposals)
async def apply(
    client: Client,
    proposal_id: Id,
    operations: Annotated[list[int] | None, typer.Argument(help="Numbers of operations. Default: all.")] = None,
    samples: Annotated[bool, typer.Option("--samples", help="Of a new table: with the sample rows.")] = False,
) -> frame.Found:
    """Apply a proposal, or some of its operations. The same command again changes nothing."""
    return _proposal(await client.apply_proposal(proposal_id, operations or None, include_sample_rows=samples))


@frame.command(proposals)
async def dismiss(client: Client, proposal_id: Id) -> frame.Found:
    """Dismiss a proposal: nothing is changed."""
    return _proposal(await client.dismiss_proposal(proposal_id))


def _proposal(found: ProposalView) -> frame.Found:
    return frame.Found(found, lambda: print_proposal(found))
