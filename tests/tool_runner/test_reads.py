"""Which tools may be read by, and who may ask. What a gateway makes of the answers: tests/gateway/tables."""

import pytest
from nats.aio.client import Client

from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ReadRequested
from contracts.wire import subjects
from runwire import ToolContext, tool
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Serve, Start, fault_of

ASKED: list[str] = []


@tool(side_effects="read", idempotent=True)
async def look_up(word: str) -> str:
    """Look something up."""
    ASKED.append(word)
    return word


@tool(side_effects="read")
async def look_once() -> str:
    """May not be repeated."""
    return "once"


@tool(side_effects="write", idempotent=True)
async def write_down() -> str:
    """Change something."""
    return "written"


@tool(idempotent=True, requires_approval=True)
async def ask_first() -> str:
    """Need a person."""
    return "asked"


@tool(idempotent=True)
async def wait_for_answer(ctx: ToolContext) -> str:
    """Ask a person."""
    return str(await ctx.pause(title="Which?"))


TOOLS = (look_up, look_once, write_down, ask_first, wait_for_answer)
REFUSED = {each.name: "bad_request" for each in TOOLS} | {"look_up": "invalid_args", "nobody": "unknown_tool"}


async def test_only_what_changes_nothing_is_read_by(
    client: Client, serve_tools: Serve, start_runner: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only a gateway gets an answer; too many at once fail at once."""
    serve_tools(*TOOLS)
    await start_runner()

    async def read(name: str, **args: str) -> CallFinished:
        asked = ReadRequested(tenant="default", tool=name, args=args).model_dump_json().encode()
        inbox = f"{subjects.replies_to('gateway')}.{name}"
        replies = await client.subscribe(inbox)
        await client.publish(subjects.tool_read(), asked, reply=inbox)
        try:
            return CallFinished.model_validate_json((await replies.next_msg(15)).data)
        finally:
            await replies.unsubscribe()

    async def is_there() -> bool:
        failures = [(await read(each.name)).failure for each in TOOLS]
        return all(failure is not None and failure.code != "unknown_tool" for failure in failures)

    await wait_until(is_there, what="the tools are in the catalogue")
    assert (await read("look_up", word="here")).observation == "here"
    for name, code in REFUSED.items():
        assert fault_of(await read(name)).code == code, name
    body = ReadRequested(tenant="default", tool="look_up", args={"word": "elsewhere"}).model_dump_json().encode()
    await client.publish(subjects.tool_read(), body, reply="emit.default.x.log")
    await read("look_up", word="afterwards")
    assert "elsewhere" not in ASKED
    monkeypatch.setattr("services.tool_runner.handlers.MAX_READS", 0)
    fault = fault_of(await read("look_up", word="one too many"))
    assert (fault.code, fault.retryable) == ("tool_unavailable", True)
    assert "one too many" not in ASKED
