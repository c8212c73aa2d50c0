"""The operator's connection to NATS, for commands on what services store there, and for the checks of tools.

The login is the first of these: a credential file (RUNWIRE_NATS_CREDENTIALS, as `runwire credentials operator` writes
it); one that is in RUNWIRE_NATS_URL, NATS_URL or RUNWIRE_NATS_USER; that of the operator in the data folder.
`reload_accounts` has nats-server read its accounts again, which ends no connections but those of removed users.

`tool_checks` finds tools that are not offered, and why: as the user `tools_operator` of the data folder it asks the
tools themselves what is connected. `check` has a tool runner compare the answers of one tool with the canonical form of
results.
"""

import asyncio
import contextlib
import json
import os
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Literal

import orjson
import typer
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoServersError
from nats.errors import TimeoutError as NatsTimeoutError

from contracts.tools.messages import REPLY_HEADER, SPEC_METADATA, CheckTool, RefusedTool, ToolChecked, ToolSpec
from contracts.wire import names, subjects
from contracts.wire.faults import Fault
from contracts.wire.names import InvalidName
from contracts.wire.rights import LOCAL_TOOLS, OPERATOR, RELOADER, TOOLS_OPERATOR
from runwire import identities
from runwire.cli.frame import Check, Found, checklist, json_object
from runwire.credentials import Credential, Login, find_login
from runwire.errors import IdentitiesUnreadable, InvalidCredential, ServerRefused
from runwire.local.data_folder import data_dir, nats_login
from runwire.nats_client import DENIED, NatsClient

_LISTEN_S, _SILENCE_S = 2.0, 0.5
_MAX_REPLIES = 2000
_CONNECT_S, _ANSWER_S = 2, 5
_CHECKING_S = 10.0
"""A tool runner says every second that it works on a check."""
_STATUS_HEADER, _NO_RESPONDERS = "Status", "503"
_HELP = "docs/tools.md#when-a-tool-does-not-appear says what to do"

_OF_SERVER, _REFUSED_SERVER = "mcp:", "mcp-"
"""Before the name of an MCP server: in a tag of its tools, and in the list of what is refused."""

Announced = dict[str, set[str]]
"""Name of a connected micro service -> the tools for which its endpoints have a specification."""


class OperatorRefused(Exception):
    """An operator's command cannot reach NATS, or asks for what is not there; the text says what to do."""


@contextlib.asynccontextmanager
async def connected_operator() -> AsyncIterator[NatsClient]:
    """Connect as the operator of the services.

    Raises InvalidCredential, IdentitiesUnreadable, and OperatorRefused for every error of NATS, also of the context.
    """
    login = find_login()
    given = login.credential()
    is_given = login.file is not None or given.user not in {"", nats_login(data_dir(), login.url).get("user")}
    async with _connected(login, given if is_given else _of_data_folder(OPERATOR, login) or given) as client:
        yield client


@contextlib.asynccontextmanager
async def connected_tools_operator() -> AsyncIterator[NatsClient | None]:
    """Connect as the operator among the tools; None where the data folder has no such user. Raises as above."""
    login = find_login()
    credential = _of_data_folder(TOOLS_OPERATOR, login)
    if credential is None:
        yield None
        return
    async with _connected(login, credential) as client:
        yield client


def _of_data_folder(user: str, login: Login) -> Credential | None:
    """The login of a user in the data folder, for the server that runs from it.

    It is sent to no other server, unless the environment names both folder and server, as in a container.
    """
    data = data_dir()
    are_named = os.environ.get("RUNWIRE_DATA_DIR") and os.environ.get("RUNWIRE_NATS_URL")
    if not (nats_login(data, login.url) or are_named):
        return None
    password = identities.read(data).passwords.get(user)
    return Credential(login.url, user, password) if password else None


async def replies(client: NatsClient, subject: str, inbox: str) -> AsyncIterator[Msg]:
    """Ask all who listen on a subject; yield what they say until all are silent, for two seconds at most."""
    received = await client.subscribe(inbox, max_msgs=_MAX_REPLIES)
    await client.publish(subject, reply=inbox)
    end = asyncio.get_running_loop().time() + _LISTEN_S
    with contextlib.suppress(NatsTimeoutError):
        for _ in range(_MAX_REPLIES):
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return
            yield await received.next_msg(min(left, _SILENCE_S))


@contextlib.asynccontextmanager
async def _connected(login: Login, credential: Credential) -> AsyncIterator[NatsClient]:
    seen: list[Exception] = []
    try:
        async with _connected_once(login, credential, seen) as client:
            yield client
    except (NatsError, OSError) as error:
        seen.append(error)
        said = " ".join(map(str, seen)).lower()
        if "authorization" in said or DENIED in said:
            who = f"the user {credential.user!r}" if credential.user else "a client without a login"
            remedy = "set RUNWIRE_NATS_CREDENTIALS to a file that `runwire credentials operator --out FILE` writes"
            raise OperatorRefused(f"NATS at {login.address} refuses {who}: {remedy}") from error
        first = str(seen[0]) or type(seen[0]).__name__
        raise OperatorRefused(f"NATS at {login.address} does not answer: {first}") from error


@contextlib.asynccontextmanager
async def _connected_once(login: Login, credential: Credential, seen: list[Exception]) -> AsyncIterator[NatsClient]:
    """Connect with one attempt, without a reconnect; `seen` gets what the server reports. Raises NatsError, OSError."""

    async def on_error(error: Exception) -> None:
        seen.append(error)

    client = NatsClient(demands_tls=login.demands_tls)
    options: dict[str, Any] = {
        "servers": login.servers,
        "name": "runwire-command",
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": _CONNECT_S,
        "error_cb": on_error,
        "tls": login.ssl_context(),
    }
    if credential.user:
        options |= {"user": credential.user, "password": credential.password}
        options["inbox_prefix"] = subjects.replies_to(credential.user).encode()
    try:
        await client.connect(**options)
        yield client
    finally:
        await client.close()


async def reload_accounts(url: str, password: str, ca: str | None = None) -> bool:
    """Return True once the server at `url` works with the new accounts, False where no server answers.

    `password`: of the user `reloader`. `ca`: path of the server's certificate authority, which demands TLS as `tls://`
    does. Raises ServerRefused, also for a server that cannot be trusted, and InvalidCredential.
    """
    reloader = Credential(url, RELOADER, password, ca)
    login = Login(url, lambda: reloader, ca)
    try:
        async with _connected_once(login, reloader, []) as client:
            server = client._server_info["server_id"]  # noqa: SLF001, nats-py hides it
            answer = await client.request(f"$SYS.REQ.SERVER.{server}.RELOAD", timeout=_ANSWER_S)
    except ssl.SSLError as error:
        raise ServerRefused(f"the certificate of NATS at {login.address} is not trusted: {error}") from error
    except (NoServersError, OSError):
        return False
    except NatsError as error:
        raise ServerRefused(
            f"NATS at {login.address} refused: {error}. Does it read the accounts of this folder?"
        ) from error
    if "error" in (body := json.loads(answer.data)):
        raise ServerRefused(f"NATS did not take the new accounts: {body['error']}")
    return True


def server_checks(
    offered: Sequence[ToolSpec], refused: Sequence[RefusedTool], bad: Literal["warning", "failed"]
) -> list[Check]:
    """Return a finding for each MCP server that offers tools, or of which the tool runner complains (`bad`)."""
    tags = Counter(tag.removeprefix(_OF_SERVER) for spec in offered for tag in spec.tags if tag.startswith(_OF_SERVER))
    wrong = {
        tool.name.removeprefix(_REFUSED_SERVER): tool.reason
        for tool in refused
        if tool.name.startswith(_REFUSED_SERVER)
    }
    found = []
    for name in sorted(tags.keys() | wrong.keys()):
        reason, tools_of = wrong.get(name), f"{tags[name]} tools are offered"
        found.append(Check(name, "ok" if reason is None else bad, f"{tools_of}; {reason}" if reason else tools_of))
    return found


async def tool_checks(
    offered: Sequence[str], refused: Sequence[RefusedTool], *, is_of_data_folder: bool
) -> list[Check]:
    """Check the tools that a gateway lists. `is_of_data_folder`: it is that of the platform in the data folder."""
    checks = []
    for tool in refused:
        if tool.name.startswith(_REFUSED_SERVER):
            continue  # See `server_checks`.
        remedy = f"see what changed before you accept it: runwire tools diff {tool.name}"
        mend = remedy if tool.digests else "correct its specification"
        checks.append(Check("tools", "warning", f"{tool.name} is refused: {tool.reason}", mend))
    if is_of_data_folder:
        checks += await _missing({*offered, *(tool.name for tool in refused)})
    if not offered:
        return [*checks, Check("tools", "warning", "none are offered", "serve some: runwire serve my_tools.py")]
    return [*checks, Check("tools", "ok", ", ".join(offered))]


async def _missing(known: set[str]) -> list[Check]:
    """Name what has a credential or is connected, and is not listed."""
    try:
        users = identities.read(data_dir()).tools
        expected = {name: user for user, tools in users.items() if user != LOCAL_TOOLS for name in tools}
        announced = await _announced()
    except (IdentitiesUnreadable, InvalidCredential, OperatorRefused) as error:
        return [Check("tools", "warning", f"which tools are connected is not known: {error}")]
    missing = sorted((expected.keys() | announced.keys()) - known)
    return [Check("tools", "warning", _reason(name, expected.get(name), announced), _HELP) for name in missing]


def _reason(name: str, user: str | None, announced: Announced) -> str:
    if name not in announced:
        return f"{name} is not offered: no process serves it as the NATS user {user}"
    if not announced[name]:
        return f"{name} is not offered: it is connected, and no endpoint of it has the metadata {SPEC_METADATA}"
    if name not in announced[name]:
        others = ", ".join(sorted(announced[name]))
        return f"{name} is not offered: it announces {others}; a micro service has the name of its tool"
    if user is None:
        return f"{name} is not offered: it is connected, and no credential is for this name, or it has just started"
    return f"{name} is not offered: it is connected as {user}; the log of the tool runner says more"


async def _announced() -> Announced:
    """Ask the connected micro services of tools. Ignores names that no tool can have."""
    found: Announced = {}
    async with connected_tools_operator() as client:
        if client is None:
            return found
        async for message in replies(client, subjects.micro_service("INFO"), client.new_inbox()):
            with contextlib.suppress(InvalidName, KeyError, TypeError, AttributeError, ValueError):
                info = orjson.loads(message.data)
                own = found.setdefault(names.checked_tool(info["name"]), set())
                for endpoint in info["endpoints"]:
                    if SPEC_METADATA in (endpoint.get("metadata") or {}):
                        own.add(subjects.called_tool(endpoint["subject"]))
    return found


async def check(
    name: str,
    args: Annotated[
        str | None, typer.Option(help="A JSON object: call the tool with these arguments, and check its answer too.")
    ] = None,
    context: Annotated[str, typer.Option(help="A JSON object: the tool_context of that call.")] = "{}",
    yes: Annotated[
        bool, typer.Option("--yes", help="Call it also if it requires approval or has side effects.")
    ] = False,
    standard: Annotated[
        bool, typer.Option("--standard", help="Judge its results as canonical ones, also if it declares none.")
    ] = False,
) -> Found:
    """Check a tool that is served now, line by line; one with artifacts against the canonical form of results."""
    request = CheckTool(
        tool=names.checked_tool(name),
        args=None if args is None else json_object(args, "--args"),
        context=json_object(context, "--context"),
        confirmed=yes,
        standard=standard,
    )
    async with connected_operator() as client:
        inbox = client.new_inbox()
        received = await client.subscribe(inbox)
        await client.publish(subjects.tool_check(), request.model_dump_json().encode(), reply=inbox)
        while True:
            try:
                message = await received.next_msg(_CHECKING_S)
            except NatsTimeoutError as error:
                raise OperatorRefused("the tool runner that checked it does not answer any more; try again") from error
            headers = message.headers or {}
            if headers.get(_STATUS_HEADER) == _NO_RESPONDERS:
                raise OperatorRefused(
                    "no tool runner answers; `runwire up` starts one, an earlier version checks no tools"
                )
            if headers.get(REPLY_HEADER) == "result":
                found = ToolChecked.model_validate_json(message.data).findings
                return checklist([Check(one.name, one.status, one.finding, one.mend) for one in found])
            if headers.get(REPLY_HEADER) == "failure":
                raise OperatorRefused(Fault.model_validate_json(message.data).reason)
            # Anything else says that the check goes on.
