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

`-o json` prints one JSON document, `-o jsonl` an event or item per line, both on stdout and nothing else there. These
formats and codes stay stable between versions.
"""

import os
import sys
from contextvars import ContextVar
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

COMMANDS = {
    "up": "Start everything on this machine and stay in the foreground. Data is kept under RUNWIRE_DATA_DIR "
    "(.runwire).",
    "run": "Ask a question and show how it is answered.",
    "tail": "Follow a run from its beginning, whether it is running or has ended.",
    "cancel": "Stop a run.",
    "delete": "Delete a run with its events, artifacts and images; one that is still running is cancelled first.",
    "chat": "Hold a conversation, with approvals and questions asked in place. Ctrl-C steers or cancels, twice leaves.",
    "sessions": "List sessions, or show one: its runs, its queue, what waits for a person, its summary and context.",
    "proposals": "Proposals of a conversation for tables: list them, show one, apply it or some of it, dismiss it.",
    "approvals": "List what waits for a person: calls to approve, questions of tools and agents, and results of "
    "background tasks.",
    "approve": "Let a call that waits be executed, as `approvals` shows it or with other arguments.",
    "reject": "Refuse a call, or a question: the model reads that, and the note.",
    "answer": "Answer a question of a tool or agent.",
    "artifacts": "List the artifacts of a run or session. `runwire fetch NAME` gets one.",
    "fetch": "Get the bytes of an artifact.",
    "new": "Make a project: of a tool, in one of several languages, or of an agent.",
    "serve": "Serve the tools of Python files over NATS.",
    "env": "Print how to reach the NATS server that `runwire up` started here, for tools in other languages.",
    "logs": "Show the logs of the processes that `runwire up` has started from this data folder, by time.",
    "doctor": "Check this machine, the gateway, NATS, the model and the tools; say how to fix what is wrong.",
    "runs": "List the runs that there are, or show one.",
    "tasks": "Background tasks of a session: list them, end them, decide about them.",
    "schedule": "Schedules and webhooks, which start runs.",
    "tools": "List the tools that are available now; with NAME, describe one. Accept specifications that changed.",
    "mcp": "Servers of the Model Context Protocol: list and check those of the tool runner, add one to its file.",
    "call": "Call a tool, without a model, and print its result.",
    "tables": "Tables: list them, show one, import and export CSV files.",
    "plan": "Plans of the strategy `planned`: check one without running it.",
    "config": "Show the settings of `runwire up`, and where each comes from.",
    "context": "Gateways with a name, each with its API key.",
    "credentials": "Give tools, listeners and yourself a user on NATS, and take it back.",
}
"""Command -> what `runwire --help` says of it."""
_MODULES = {
    "approvals": {"approvals", "approve", "reject", "answer", "tasks"},
    "config": {"config", "context"},
    "data": {"artifacts", "fetch", "tables"},
    "machine": {"up", "env", "logs"},
    "runs": {"run", "tail", "cancel", "delete", "runs", "schedule"},
    "serve": {"new", "serve"},
    "sessions": {"chat", "sessions", "proposals"},
    "tools": {"call", "mcp", "plan", "tools"},
}
"""Module of `runwire.cli.commands` -> its commands. Others are in the module of their name."""


GROUPS = {
    "Ask": "run chat tail cancel delete runs sessions artifacts fetch",
    "Decide": "approvals approve reject answer proposals tasks",
    "Tools and data": "new serve tools mcp call tables plan schedule",
    "Operate": "up doctor logs env config context credentials",
}
"""Heading of `runwire --help` -> its commands."""
_EXAMPLES = """Examples:

runwire run "What is 17*23?"

runwire runs ls --status waiting

runwire serve my_tools.py
"""
_HELP_FORM: Literal["rich"] | None = "rich" if sys.stdout.isatty() and sys.stderr.isatty() else None
"""Boxes are for people who look at them."""

NAMED: ContextVar[str | None] = ContextVar("NAMED", default=None)
"""The context that `--context` or RUNWIRE_CONTEXT names, for `frame`. Processes that a command starts do not see it."""


class _Commands(TyperGroup):
    """Loads the module of the command that is called, and no other: the libraries of all take a second of CPU time."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        headings = {name: heading for heading, names in GROUPS.items() for name in names.split()}
        self.commands = {
            name: TyperCommand(name, help=COMMANDS[name], rich_help_panel=heading) for name, heading in headings.items()
        }

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Print the groups without boxes."""
        for heading, names in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(90)) for name in names.split()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, loaded(name or ""), rest


def loaded(name: str) -> Any:
    """A command with its options, from its module."""
    module = next((module for module, names in _MODULES.items() if name in names), name)
    command = get_group(import_module(f"runwire.cli.commands.{module}").commands).commands[name]
    command.help = command.help or COMMANDS[name]
    for each in (command, *getattr(command, "commands", {}).values()):
        each.rich_markup_mode = _HELP_FORM
    return command


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=_HELP_FORM,
    epilog=_EXAMPLES,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"runwire {version('runwire')}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    named: Annotated[
        str | None,
        typer.Option("--context", envvar="RUNWIRE_CONTEXT", help="Ask this gateway: `runwire context` lists them."),
    ] = None,
) -> None:
    """Run LLM agents on your own machines."""
    NAMED.set(named)
    if context.invoked_subcommand in {"up", "doctor"}:
        from runwire.cli.printing import Exit, print_error  # noqa: PLC0415, other commands read no files
        from runwire.local import configuration  # noqa: PLC0415
        from runwire.local.supervisor import CannotLaunch  # noqa: PLC0415

        try:
            configuration.apply(os.environ, Path())
        except CannotLaunch as error:
            print_error(str(error))
            raise typer.Exit(Exit.FAILED) from None
