"""The checks of tools: of all, which are not offered and why; of one, its answers against the standard form of results.

What is connected is asked of the tools themselves, as the user `tools_operator` of the data folder. A tool runner
checks one tool, as `runwire tools check` asks it.
"""

import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import orjson
from nats.errors import TimeoutError as NatsTimeoutError

from contracts.tools.messages import REPLY_HEADER, SPEC_METADATA, CheckTool, RefusedTool, ToolChecked, ToolSpec
from contracts.wire import names, subjects
from contracts.wire.faults import Fault
from contracts.wire.names import InvalidName
from contracts.wire.rights import LOCAL_TOOLS
from runwire import identities
from runwire.cli.frame import Check
from runwire.cli.operator import OperatorRefused, connected_operator, connected_tools_operator, replies
from runwire.errors import IdentitiesUnreadable, InvalidCredential
from runwire.local.data_folder import data_dir

_SILENCE_S = 10.0
"""A tool runner says every second that it works on a check."""
_STATUS_HEADER, _NO_RESPONDERS = "Status", "503"
_HELP = "docs/tools.md#when-a-tool-does-not-appear says what to do"

_OF_SERVER, _REFUSED_SERVER = "mcp:", "mcp-"
"""Before the name of an MCP server: in a tag of its tools, and in the list of what is refused."""

Announced = dict[str, set[str]]
"""Name of a connected micro service -> the tools for which its endpoints have a specification."""


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


async def checked(
    name: str, args: dict[str, Any] | None, context: dict[str, Any], *, confirmed: bool = False, standard: bool = False
) -> ToolChecked:
    """Return the checklist of a tool; with `args` after a real call of it.

    Raises InvalidName, InvalidCredential, IdentitiesUnreadable and OperatorRefused.
    """
    tool = names.checked_tool(name)
    request = CheckTool(tool=tool, args=args, context=context, confirmed=confirmed, standard=standard)
    async with connected_operator() as client:
        inbox = client.new_inbox()
        received = await client.subscribe(inbox)
        await client.publish(subjects.tool_check(), request.model_dump_json().encode(), reply=inbox)
        while True:
            try:
                message = await received.next_msg(_SILENCE_S)
            except NatsTimeoutError as error:
                raise OperatorRefused("the tool runner that checked it does not answer any more; try again") from error
            headers = message.headers or {}
            if headers.get(_STATUS_HEADER) == _NO_RESPONDERS:
                raise OperatorRefused(
                    "no tool runner answers; `runwire up` starts one, an earlier version checks no tools"
                )
            if headers.get(REPLY_HEADER) == "result":
                return ToolChecked.model_validate_json(message.data)
            if headers.get(REPLY_HEADER) == "failure":
                raise OperatorRefused(Fault.model_validate_json(message.data).reason)
            # Anything else says that the check goes on.
