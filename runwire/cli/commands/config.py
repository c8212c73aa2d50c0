"""Where commands find what they need: settings of `runwire up`, and gateways with a name."""

import os
from pathlib import Path
from typing import Annotated

import typer

from runwire.cli.frame import Context, Contexts, Found, Noun, command, table
from runwire.cli.printing import ERR, print_table, visible
from runwire.local import configuration
from runwire.local.supervisor import CannotLaunch

commands = typer.Typer()
config, context = typer.Typer(no_args_is_help=True), typer.Typer(cls=Noun)
commands.add_typer(config, name="config")
commands.add_typer(context, name="context")

Name = Annotated[str, typer.Argument(metavar="NAME")]


@command(config, expected=(CannotLaunch,))
def show() -> Found:
    """Show each setting that `runwire up` would read here, and where it comes from; secrets are hidden."""
    rows = [[each.name, visible(each.shown), each.source] for each in configuration.settings(os.environ, Path())]
    documents = [dict(zip(("name", "value", "source"), row, strict=True)) for row in rows]

    def print_rows() -> None:
        print_table([["setting", "value", "from"], *rows])
        ERR.print("[dim]all others have their defaults: docs/operations.md[/dim]")

    return Found(documents, print_rows)


@command(context)
def ls() -> Found:
    """List the gateways that have a name; * is the one that commands take."""
    contexts = Contexts.read()
    known = sorted(contexts.known.items())
    documents = [
        {"name": name, "url": each.url, "has_key": each.api_key is not None, "is_current": name == contexts.current}
        for name, each in known
    ]
    rows = [[f"{'*' if name == contexts.current else ' '} {name}", each.url] for name, each in known]
    nouns = "contexts: runwire context add NAME --url URL"
    return table(documents, ["  context", "gateway"], rows, nouns)


@context.command()
def add(
    name: Name,
    url: Annotated[str, typer.Option("--url", help="The gateway.")],
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="RUNWIRE_API_KEY", help="Sent to this gateway alone.")
    ] = None,
) -> None:
    """Give a gateway a name, with its key. The first one is taken by all commands from then on."""
    contexts = Contexts.read()
    contexts.known[name] = Context(url, api_key)
    contexts.current = contexts.current or name
    contexts.write()


@context.command()
def use(name: Annotated[str, typer.Argument(metavar="NAME", help='"": none.')]) -> None:
    """Let all commands take this context from now on; `runwire --context NAME …` names one for a single command."""
    contexts = Contexts.read()
    if name:
        contexts.named(name)
    contexts.current = name or None
    contexts.write()


@context.command()
def remove(name: Name) -> None:
    """Forget a context and its key."""
    contexts = Contexts.read()
    contexts.named(name)
    del contexts.known[name]
    contexts.current = None if contexts.current == name else contexts.current
    contexts.write()
