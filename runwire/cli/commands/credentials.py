"""Commands for the users of NATS: `runwire credentials tool | listener | operator | ls | revoke | refresh`.

They work on a folder: the data folder of `runwire up`, or that of the container `credentials`. A change takes effect at
once and disconnects nobody but the user who is revoked.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from contracts.wire.names import InvalidName
from contracts.wire.rights import LOCAL_TOOLS, OPERATOR, RELOADER, TOOLS_OPERATOR
from runwire import identities
from runwire.cli.frame import Found, command, table
from runwire.cli.operator import reload_accounts
from runwire.credentials import Credential
from runwire.errors import IdentitiesUnreadable, InvalidCredential, ServerRefused, UnknownIdentity
from runwire.identities import Identities, write_private
from runwire.local.data_folder import data_dir, remembered

commands = typer.Typer()
credentials = typer.Typer(no_args_is_help=True)
commands.add_typer(credentials, name="credentials")

_DEFAULT_URL = "nats://127.0.0.1:4222"
_EXPECTED = (IdentitiesUnreadable, InvalidCredential, InvalidName, ServerRefused, UnknownIdentity)
Out = Annotated[
    Path | None, typer.Option("--out", dir_okay=False, help="Write the credential file here, readable by you alone.")
]
AsUrl = Annotated[bool, typer.Option("--url", help="Print nats://user:password@host:port instead of the file.")]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="RUNWIRE_NATS_PUBLIC_URL",
        help="The address under which the program reaches NATS. Default: the server of the data folder.",
    ),
]


@command(credentials, expected=_EXPECTED)
def tool(names: list[str], out: Out = None, url: AsUrl = False, server: Server = None) -> None:
    """Make the credential of a process that serves these tools. It may serve no other."""
    _give(lambda known: known.add_tools(*names), f"Runwire tools: {', '.join(names)}", out, server, as_url=url)


@command(credentials, expected=_EXPECTED)
def listener(
    tenant: str,
    run: Annotated[str | None, typer.Argument(help="The id of one run. Default: all runs of the tenant.")] = None,
    out: Out = None,
    url: AsUrl = False,
    server: Server = None,
) -> None:
    """Make the credential of a program that receives the records of a tenant's runs, or of one run."""
    description = f"Runwire listener of {tenant}{f', run {run}' if run else ''}"
    _give(lambda known: known.add_listener(tenant, run), description, out, server, as_url=url)


@command(credentials, expected=_EXPECTED)
def operator(
    tools: Annotated[bool, typer.Option("--tools", help="For `nats micro ls` among the tools instead.")] = False,
    out: Out = None,
    url: AsUrl = False,
    server: Server = None,
) -> None:
    """Print the operator's credential: every stream and subject of the services. Guard it."""
    user = TOOLS_OPERATOR if tools else OPERATOR
    _give(lambda _known: user, f"Runwire {user}", out, server, as_url=url)


@command(credentials, "ls", expected=_EXPECTED)
def list_credentials() -> Found:
    """List the credentials of tools and listeners."""
    columns, known = ["user", "kind", "of"], identities.read(data_dir())
    rows = [[user, "tool", ", ".join(names)] for user, names in sorted(known.tools.items()) if user != LOCAL_TOOLS]
    rows += [
        [user, "listener", f"tenant {tenant}" + (f", run {run}" if run else "")]
        for user, (tenant, run) in sorted(known.listeners.items())
    ]
    documents = [dict(zip(columns, row, strict=True)) for row in rows]
    return table(documents, columns, rows, "credentials yet: runwire credentials tool NAME makes one")


@command(credentials, expected=_EXPECTED)
def revoke(user: Annotated[str, typer.Argument(help="As `runwire credentials ls` names it.")]) -> None:
    """Take a credential back: its connections are closed at once."""
    change(lambda known: known.revoke(user))
    sys.stdout.write(f"{user} is revoked\n")


@command(credentials, expected=_EXPECTED)
def refresh(
    logins: Annotated[
        Path | None,
        typer.Option(
            "--logins", help="A folder with a folder per user, such as `planner`; each gets a file `password`."
        ),
    ] = None,
) -> None:
    """Make what is missing, and write the accounts anew, as a new version needs them."""
    passwords = change(lambda _known: "", is_quiet=True)[0].passwords
    for folder in sorted(logins.iterdir()) if logins else ():
        if folder.name in passwords:
            write_private(folder / "password", passwords[folder.name])


def _give(
    make: Callable[[Identities], str], description: str, out: Path | None, server: str | None, *, as_url: bool
) -> None:
    """Make a user, and print the credential or write it to a file."""
    known, user = change(make)
    address = server or remembered(data_dir()).get("nats_url") or _DEFAULT_URL
    ca = os.environ.get("RUNWIRE_NATS_PUBLIC_CA") or os.environ.get("RUNWIRE_NATS_CA")
    credential = Credential(address, user, known.passwords[user], ca, description)
    if out is not None:
        write_private(out, credential.as_json())
    else:
        sys.stdout.write(f"{credential.as_url()}\n" if as_url else credential.as_json())


def change(make: Callable[[Identities], str], *, is_quiet: bool = False) -> tuple[Identities, str]:
    """Change the identities of the data folder, have NATS read them again, and return them with the user."""
    data = data_dir()
    # In a folder that is none, a login would be made that no server will ever know.
    if not data.is_dir():
        remedy = "`runwire up` makes it; RUNWIRE_DATA_DIR names another one"
        raise UnknownIdentity(f"there is no data folder {data}: {remedy}")
    with identities.changed(data) as known:
        user = make(known)
    is_reloaded, url = False, os.environ.get("RUNWIRE_NATS_URL") or remembered(data).get("nats_url")
    if url is not None:
        with identities.one_reload(data):
            reload = reload_accounts(url, known.passwords[RELOADER], os.environ.get("RUNWIRE_NATS_CA"))
            is_reloaded = asyncio.run(reload)
    if not is_reloaded and not is_quiet:
        sys.stderr.write("NATS was not reached; it reads the change when it starts\n")
    return known, user
