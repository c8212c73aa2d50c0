"""Commands on data: the artifacts of a run or session, and tables."""

import os
import sys
import webbrowser
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from runwire.cli.frame import NEWEST, RUN, SESSION, Found, Listing, Noun, Url, command, gateway_of, is_whole
from runwire.cli.frame import table as listing
from runwire.cli.pauses import Approved, called
from runwire.cli.printing import ERR, marked, one_line, print_fields, print_table, size_text
from runwire.cli.report import artifacts_of, once, stored_artifacts
from runwire.client import Client

commands = typer.Typer()
tables = typer.Typer(cls=Noun)
commands.add_typer(tables, name="tables")
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Write to this file. Default: stdout.")]
Table = Annotated[str, typer.Argument(metavar="TABLE", help="As `runwire tables ls` prints it.")]


@command(commands, cls=Listing)
async def artifacts(
    client: Client,
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Its id, or the beginning. Default: the newest run."), RUN
    ] = None,
    session: Annotated[str | None, typer.Option(help="Those of a session."), SESSION] = None,
    own_id: Annotated[str | None, typer.Option(help="The newest one to which a tool gave this id.")] = None,
    skill: Annotated[str | None, typer.Option(help="Those made for a skill.")] = None,
    is_open: Annotated[bool, typer.Option("--open", help="Show them in the playground, in a browser.")] = False,
    url: Url = None,
) -> Found:
    """List the artifacts of a run or session. `runwire fetch NAME` gets one."""
    if run_id is not None and session is not None:
        raise typer.BadParameter("give a run or --session")
    if session is None:
        run_id = run_id or await RUN.whole(client, NEWEST)
    if run_id is not None and own_id is None and skill is None:
        found = await artifacts_of(client, run_id)
    else:
        found = [each async for each in stored_artifacts(client, run_id, session, own_id=own_id, skill_id=skill)]

    if is_open:
        of_session = session or (await client.status(run_id or "", artifacts="refs")).session_id or f"run-{run_id}"
        page = f"{gateway_of(url)[0]}/playground#/s/{quote(of_session, safe='')}"
        ERR.print(f"[dim]{marked(page)}[/dim]")
        webbrowser.open(page)

    rows = []
    for each in found:
        own = one_line(each.own_id or "") or "-"
        rows.append([one_line(each.name), each.kind, size_text(each.size), each.artifact_id or "-", own])
    columns = ["name", "type", "size", "id", "id of its tool"]
    return listing([each.described() for each in found], columns, rows, "such artifacts")


@command(commands)
async def fetch(
    client: Client,
    artifact: Annotated[
        str, typer.Argument(help="Its id, the beginning of it, or its name, as `runwire artifacts` prints them.")
    ] = NEWEST,
    run: Annotated[str, typer.Option(help="The run that has it, unless a whole id is given.")] = NEWEST,
    file: Output = None,
) -> None:
    """Get the bytes of an artifact."""
    if is_whole(artifact):
        await _write(client.fetch(artifact), file)
        return
    of_run = await artifacts_of(client, await RUN.whole(client, run))
    found = [each for each in of_run if each.name == artifact or (each.artifact_id or "").startswith(artifact)]
    found = of_run[-1:] if artifact == NEWEST else found
    if len(found) != 1:
        names = ", ".join(f"{each.name} ({each.artifact_id or 'in the payload'})" for each in of_run) or "none"
        raise typer.BadParameter(f"{len(found)} artifacts of the run are meant; it has {names}", param_hint="ARTIFACT")
    (one,) = found
    await _write(client.fetch(one.artifact_id) if one.artifact_id else once(one.data), file)


async def _write(pieces: AsyncIterator[bytes], file: Path | None) -> None:
    first = await anext(pieces, b"")  # What does not exist leaves no file.
    with file.open("wb") if file else os.fdopen(os.dup(sys.stdout.fileno()), "wb") as target:
        target.write(first)
        async for piece in pieces:
            target.write(piece)


@command(tables, "ls")
async def list_tables(client: Client) -> Found:
    """List the tables."""
    found = await client.tables()
    fields = ["table_id", "rows", "columns", "name"]
    rows = [[one_line(str(each[field])) for field in fields] for each in found]
    return listing(found, ["table", *fields[1:]], rows, "tables")


@command(tables)
async def show(client: Client, table: Table) -> Found:
    """Show a table: its columns, and how many rows it has."""
    found = await client.table(table)

    def describe() -> None:
        fields = [(field, str(found[field])) for field in ("table_id", "name", "description", "version", "rows")]
        print_fields(fields, 12)
        columns = [[each["column_id"], each["type"], each["name"]] for each in found["columns"]]
        print_table([["column", "type", "name"], *columns])

    return Found(found, describe)


@command(tables, "import")
async def import_csv(
    client: Client,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV file.")],
    name: Annotated[str | None, typer.Option(help="Of a new table. Default: the name of the file.")] = None,
    table: Annotated[str | None, typer.Option(help="Add the rows to this table.")] = None,
    yes: Approved = False,
) -> Found:
    """Import a CSV file into a new table, or into an existing one, and report what was refused."""
    try:
        run = await client.import_table(file, name=name or (None if table else file.stem), table_id=table)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from None
    return await called(client, run, is_approved=yes)


@command(tables)
async def export(
    client: Client,
    table: Table,
    file: Output = None,
    bom: Annotated[bool, typer.Option("--bom", help="Begin with a byte order mark, which Excel needs.")] = False,
) -> None:
    """Export a table as CSV."""
    await _write(client.export_table(table, bom=bom), file)
