"""The command line: its commands in the order of `runwire --help`, and how a command ends.

| exit code | meaning |
| --- | --- |
| 0 | the run ended with an answer; or the command succeeded |
| 1 | another error; or what read the output has gone |
| 2 | the command line is wrong |
| 3 | the run ended in an error |
| 4 | the run ended without a full answer: a budget ran out, or no path was found |
| 5 | the run was cancelled |
| 6 | the gateway cannot be reached, or refused the request |
| 130 | interrupted |

`-o json` prints one JSON document, `-o jsonl` one event per line, both on stdout and nothing else there. These formats
and codes stay stable between versions.
"""

from typing import Annotated

import typer

from runwire.cli import (
    approval_commands,
    artifact_commands,
    credential_commands,
    history_commands,
    log_commands,
    machine_commands,
    plan_commands,
    run_commands,
    schedule_commands,
    session_commands,
    task_commands,
    tool_commands,
)

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415, 10 ms that no other command needs

        typer.echo(f"runwire {version('runwire')}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run LLM agents on your own machines."""


app.command()(machine_commands.up)
app.command()(run_commands.run)
app.command()(run_commands.tail)
app.command()(run_commands.cancel)
app.command()(run_commands.delete)
app.add_typer(history_commands.runs, name="runs")
app.command()(session_commands.chat)
app.command()(session_commands.sessions)
app.add_typer(task_commands.app, name="tasks")
app.add_typer(schedule_commands.app, name="schedule")
app.command()(approval_commands.approvals)
app.command()(approval_commands.approve)
app.command()(approval_commands.reject)
app.command()(approval_commands.answer)
app.command()(artifact_commands.artifacts)
app.command()(artifact_commands.fetch)
app.add_typer(tool_commands.app, name="tools")
app.command()(tool_commands.serve)
app.add_typer(plan_commands.app, name="plan")
app.add_typer(credential_commands.app, name="credentials")
app.command()(machine_commands.env)
app.command()(log_commands.logs)
app.command()(machine_commands.doctor)
