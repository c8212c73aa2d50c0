"""Commands for the users of NATS: `runwire credentials tool | listener | operator | ls | revoke | refresh`.

They work on a folder: the data folder of `runwire up`, or that of the container `credentials`. A change takes effect at
once and disconnects nobody but the user who is revoked.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from contracts.wire.names import InvalidName
from contracts.wire.rights import LOCAL_TOOLS, OPERATOR, RELOADER, TOOLS_OPERATOR
from runwire.cli.common import print_table
from runwire.cli.exit_codes import EXIT_FAILED, print_error
from runwire.credentials import identities
from runwire.credentials.files import Credential
from runwire.credentials.identities import Identities
from runwire.errors import IdentitiesUnreadable, InvalidCredential, ServerRefused, UnknownIdentity
from runwire.local.data_folder import data_dir, remembered
from runwire.private_files import write_private

app = typer.Typer(no_args_is_help=True, help="Give tools, listeners and yourself a user on NATS, and take it back.")

_DEFAULT_URL = "nats://127.0.0.1:4222"
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


@app.command()
def tool(names: list[str], out: Out = None, url: AsUrl = False, server: Server = None) -> None:
    """Make the credential of a process that serves these tools. It may serve no other."""
    user = _change(lambda known: known.add_tools(*names))
    _give(user, f"Runwire tools: {', '.join(names)}", out, server, as_url=url)


@app.command()
def listener(
    tenant: str,
    run: Annotated[str | None, typer.Argument(help="The id of one run. Default: all runs of the tenant.")] = None,
    out: Out = None,
    url: AsUrl = False,
    server: Server = None,
) -> None:
    """Make the credential of a program that receives the records of a tenant's runs, or of one run."""
    user = _change(lambda known: known.add_listener(tenant, run))
    _give(user, f"Runwire listener of {tenant}{f', run {run}' if run else ''}", out, server, as_url=url)


@app.command()
def operator(
    tools: Annotated[bool, typer.Option("--tools", help="For `nats micro ls` among the tools instead.")] = False,
    out: Out = None,
    url: AsUrl = False,
    server: Server = None,
) -> None:
    """Print the operator's credential: every stream and subject of the services. Guard it."""
    user = TOOLS_OPERATOR if tools else OPERATOR
    _change(lambda _known: user)
    _give(user, f"Runwire {user}", out, server, as_url=url)


@app.command("ls")
def list_credentials(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """List the credentials of tools and listeners."""
    known = _read()
    rows = [[user, "tool", ", ".join(names)] for user, names in sorted(known.tools.items()) if user != LOCAL_TOOLS]
    rows += [
        [user, "listener", f"tenant {tenant}" + (f", run {run}" if run else "")]
        for user, (tenant, run) in sorted(known.listeners.items())
    ]
    if as_json:
        sys.stdout.write(json.dumps([dict(zip(("user", "kind", "of"), row, strict=True)) for row in rows]) + "\n")
        return
    if rows:
        print_table([["user", "kind", "of"], *rows])
    else:
        sys.stdout.write("no credentials were made yet: `runwire credentials tool NAME` makes one\n")


@app.command()
def revoke(user: Annotated[str, typer.Argument(help="As `runwire credentials ls` names it.")]) -> None:
    """Take a credential back: its connections are closed at once."""
    _change(lambda known: known.revoke(user))
    sys.stdout.write(f"{user} is revoked\n")


@app.command()
def refresh(
    logins: Annotated[
        Path | None,
        typer.Option(
            "--logins", help="A folder with a folder per user, such as `planner`; each gets a file `password`."
        ),
    ] = None,
) -> None:
    """Make what is missing, and write the accounts anew, as a new version needs them."""
    _change(lambda _known: "", is_quiet=True)
    passwords = _read().passwords
    for folder in sorted(logins.iterdir()) if logins else ():
        if folder.name in passwords:
            write_private(folder / "password", passwords[folder.name])


def _read() -> Identities:
    try:
        return identities.read(data_dir())
    except IdentitiesUnreadable as error:
        raise _failed(error) from error


def _change(change: Callable[[Identities], str], *, is_quiet: bool = False) -> str:
    """Change the identities of the data folder, have NATS read them again, and return the user."""
    # In a folder that is none, a login would be made that no server will ever know.
    if not data_dir().is_dir():
        remedy = "`runwire up` makes it; RUNWIRE_DATA_DIR names another one"
        raise _failed(UnknownIdentity(f"there is no data folder {data_dir()}: {remedy}"))
    try:
        with identities.changed(data_dir()) as known:
            user = change(known)
        if not _is_reloaded(known.passwords[RELOADER]) and not is_quiet:
            sys.stderr.write("NATS was not reached; it reads the change when it starts\n")
    except (IdentitiesUnreadable, InvalidCredential, InvalidName, OSError, ServerRefused, UnknownIdentity) as error:
        raise _failed(error) from error
    return user


def _is_reloaded(password: str) -> bool:
    url = os.environ.get("RUNWIRE_NATS_URL") or remembered(data_dir()).get("nats_url")
    if url is None:
        return False
    import asyncio  # noqa: PLC0415, other commands need neither

    from runwire.credentials.reload import reload_accounts  # noqa: PLC0415

    with identities.one_reload(data_dir()):
        return asyncio.run(reload_accounts(url, password, os.environ.get("RUNWIRE_NATS_CA")))


def _give(user: str, description: str, out: Path | None, server: str | None, *, as_url: bool) -> None:
    address = server or remembered(data_dir()).get("nats_url") or _DEFAULT_URL
    ca = os.environ.get("RUNWIRE_NATS_PUBLIC_CA") or os.environ.get("RUNWIRE_NATS_CA")
    credential = Credential(address, user, _read().passwords[user], ca, description)
    if out is not None:
        write_private(out, credential.as_json())
    else:
        sys.stdout.write(f"{credential.as_url()}\n" if as_url else credential.as_json())


def _failed(error: Exception) -> typer.Exit:
    print_error(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error))
    return typer.Exit(EXIT_FAILED)
