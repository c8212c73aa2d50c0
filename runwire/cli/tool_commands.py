"""Commands on tools: list them, serve them."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from runwire.cli.common import Format, Key, Output, Url, client_of, finish, print_line, restart
from runwire.cli.entry_point import SERVE


def tools(url: Url = None, api_key: Key = None, output: Format = Output.text) -> None:
    """List the tools that are available now."""

    async def work() -> int:
        async with client_of(url, api_key) as client:
            specs = await client.tools()
            refused = await client.refused_tools()
        if output is not Output.text:
            dumped = [spec.model_dump(mode="json") for spec in specs]
            sys.stdout.write(json.dumps(dumped, ensure_ascii=False) + "\n")
            return 0
        table = Table("tool", "description", "arguments", "flags", box=None)
        for spec in specs:
            flags = [name for name in ("idempotent", "requires_approval") if getattr(spec, name)]
            arguments = ", ".join(spec.input_schema.get("properties") or {})
            table.add_row(spec.name, spec.description, arguments, " ".join(flags))
        Console().print(table)
        for tool in refused:
            print_line(Console(stderr=True), f"{escape(tool.name)} is refused: {escape(tool.reason)}")
        return 0

    finish(work())


def serve(
    files: list[Path],
    credentials: Annotated[
        Path | None,
        typer.Option(help="A credential file, as `runwire credentials tool` writes it. [RUNWIRE_NATS_CREDENTIALS]"),
    ] = None,
    nats_url: Annotated[
        str | None,
        typer.Option(help="By default the server that `runwire up` starts. [RUNWIRE_NATS_URL, NATS_URL]"),
    ] = None,
    health_file: Annotated[
        Path | None,
        typer.Option(help="Touched every two seconds while the tools can be called. [RUNWIRE_HEALTH_FILE]"),
    ] = None,
) -> None:
    """Serve the tools of Python files over NATS."""
    options = {
        "files": [str(file) for file in files],
        "url": nats_url,
        "credentials": credentials and str(credentials),
        "health_file": health_file and str(health_file),
    }
    restart(SERVE, options)
