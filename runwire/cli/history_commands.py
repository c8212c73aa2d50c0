"""Commands on the runs that there are: list them, show one."""

from enum import StrEnum
from typing import Annotated

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
    print_table,
)
from runwire.cli.exit_codes import print_error

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
        if as_json or output is not Output.text:
            print_json([run.model_dump(mode="json") for run in found])
        elif found:
            rows = [
                [run.run_id, run.status, age_text(run.requested_at), one_line(run.code or ""), one_line(run.query)]
                for run in found
            ]
            print_table([["run", "status", "age", "error", "question"], *rows])
        else:
            print_error(f"there are no runs{f' with status {status}' if status else ''}")
        return 0

    finish(work())


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
