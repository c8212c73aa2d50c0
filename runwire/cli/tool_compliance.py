"""Ask a tool runner, as an operator, for the check of a tool: `runwire tools check`."""

import json
from typing import Any

from nats.aio.msg import Msg
from nats.errors import TimeoutError as NatsTimeoutError

from contracts.tools.checks import CheckTool, ToolChecked
from contracts.tools.messages import REPLY_HEADER
from contracts.wire import names, subjects
from contracts.wire.faults import Fault
from runwire.cli.operator import OperatorRefused, connected_operator

_SILENCE_S = 10.0
"""A tool runner says every second that it works on a check."""
_STATUS_HEADER, _NO_RESPONDERS = "Status", "503"


async def checked(
    name: str, args: dict[str, Any] | None, context: dict[str, Any], *, confirmed: bool = False
) -> ToolChecked:
    """Return the checklist of a tool; with `args` after a real call of it.

    Raises InvalidName, InvalidCredential, IdentitiesUnreadable and OperatorRefused.
    """
    request = CheckTool(tool=names.checked_tool(name), args=args, context=context, confirmed=confirmed)
    async with connected_operator() as client:
        inbox = client.new_inbox()
        replies = await client.subscribe(inbox)
        await client.publish(subjects.RUNNER_CHECKS, request.model_dump_json().encode(), reply=inbox)
        while True:
            try:
                message = await replies.next_msg(_SILENCE_S)
            except NatsTimeoutError as error:
                raise OperatorRefused("the tool runner that checked it does not answer any more; try again") from error
            if (found := _answer(message)) is not None:
                return found


def _answer(message: Msg) -> ToolChecked | None:
    """Return the checklist; None for a sign that the check goes on. Raises OperatorRefused."""
    headers = message.headers or {}
    if headers.get(_STATUS_HEADER) == _NO_RESPONDERS:
        raise OperatorRefused("no tool runner answers; `runwire up` starts one, an earlier version checks no tools")
    match headers.get(REPLY_HEADER):
        case "result":
            return ToolChecked.model_validate_json(message.data)
        case "failure":
            raise OperatorRefused(Fault.model_validate_json(message.data).reason)
        case _:
            return None


def read_object(text: str) -> dict[str, Any]:
    """Return the JSON object of an option. Raises ValueError, which says what is wrong."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004, as for what is no JSON
    return found
