"""Commands on the runs that there are: list them, show one."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

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
    print_list,
)

if TYPE_CHECKING:
    from runwire.client import RunStatus

runs = typer.Typer(no_args_is_help=True, help="List the runs that there are, or show one.")


class State(StrEnum):
    """What a run may be."""

    queued = "queued"
    running = "running"
    done = "done"
    error = "error"
    cancelled = "cancelled"


@runs.command()
def ls(
    status: Annotated[State | None, typer.Option(help="Only runs in this state.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="How many, the newest first.")] = 20,
    url: Url = None,
    api_key: Key = None,
    output: Format = Output.text,
    as_json: Json = False,
) -> None:
    """List runs, the newest first: id, status, age, question."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            found = [run async for run in client.list_runs(status.value if status else None, limit=limit)]
        columns = ["run", "status", "age", "error", "question"]
        nouns = f"runs{f' with status {status}' if status else ''}"
        print_list(found, columns, _row, nouns, is_json=as_json or output is not Output.text)
        return 0

    finish(work())


def _row(run: "RunStatus") -> list[str]:
    return [run.run_id, run.status, age_text(run.requested_at), one_line(run.code or ""), one_line(run.query)]


@runs.command("show")
def show_run(
    run_id: str, url: Url = None, api_key: Key = None, output: Format = Output.text, as_json: Json = False
) -> None:
    """Show a run: its status, question, steps, calls of tools, answer, artifacts and costs."""
    from runwire.cli.run_report import print_report, report_of  # noqa: PLC0415, see `client_of`

    async def work() -> int:
        async with client_of(url, api_key) as client:
            report = await report_of(client, run_id)
        if as_json or output is not Output.text:
            print_json(report)
        else:
            print_report(report, Console(emoji=False, highlight=False))
        return 0

    finish(work())
