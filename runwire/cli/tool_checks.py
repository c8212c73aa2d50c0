"""The checks of tools: which are offered, which are refused, and which are expected or connected and are neither.

What is connected is asked of the tools themselves, as the user `tools_operator` of the data folder.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import orjson
from nats.errors import TimeoutError as NatsTimeoutError

from contracts.tools.messages import SPEC_METADATA, RefusedTool
from contracts.wire import names, subjects
from contracts.wire.names import InvalidName
from contracts.wire.rights import LOCAL_TOOLS
from runwire.cli.check import Check
from runwire.cli.operator import OperatorRefused, connected_tools_operator
from runwire.credentials import identities
from runwire.errors import IdentitiesUnreadable, InvalidCredential
from runwire.local.data_folder import data_dir

_LISTEN_S, _SILENCE_S = 2.0, 0.5
_MAX_REPLIES = 2000
_HELP = "docs/tools.md#when-a-tool-does-not-appear says what to do"

Announced = dict[str, set[str]]
"""Name of a connected micro service -> the tools for which its endpoints have a specification."""


async def tool_checks(
    offered: Sequence[str], refused: Sequence[RefusedTool], *, is_of_data_folder: bool
) -> list[Check]:
    """Check the tools that a gateway lists. `is_of_data_folder`: it is that of the platform in the data folder."""
    checks = [_refused(tool) for tool in refused]
    known = {*offered, *(tool.name for tool in refused)}
    if is_of_data_folder:
        checks += await _missing(known)
    if not offered:
        return [*checks, Check("tools", "warning", "none are offered", "serve some: runwire serve my_tools.py")]
    return [*checks, Check("tools", "ok", ", ".join(offered))]


def _refused(tool: RefusedTool) -> Check:
    mend = (
        f"see what changed before you accept it: runwire tools diff {tool.name}"
        if tool.digests
        else "correct its specification"
    )
    return Check("tools", "warning", f"{tool.name} is refused: {tool.reason}", mend)


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
        inbox = client.new_inbox()
        replies = await client.subscribe(inbox, max_msgs=_MAX_REPLIES)
        await client.publish(subjects.micro_service("INFO"), reply=inbox)
        with contextlib.suppress(NatsTimeoutError, TimeoutError):
            async with asyncio.timeout(_LISTEN_S):
                for _ in range(_MAX_REPLIES):
                    message = await replies.next_msg(_SILENCE_S)
                    _take_in(found, message.data)
    return found


def _take_in(found: Announced, data: bytes) -> None:
    with contextlib.suppress(InvalidName, KeyError, TypeError, AttributeError, ValueError):
        info = orjson.loads(data)
        own = found.setdefault(names.checked_tool(info["name"]), set())
        for endpoint in info["endpoints"]:
            if SPEC_METADATA in (endpoint.get("metadata") or {}):
                own.add(subjects.called_tool(endpoint["subject"]))
