"""`runwire tools check`, as an operator calls it: each process as its own user of NATS."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel, Field

from runwire import ToolContext, ToolResponse, tool
from runwire.serving import serve
from services.messaging.connection import Bus
from services.shared.tools.catalogue import Catalogue
from tests.runwire.cli.conftest import Operates, tool_runner
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("_quiet_services", "bus")
TOOLS = ["write_post", "bare"]


class Blog(BaseModel):
    """A post."""

    title: str


@tool(side_effects="write", desc="Writes a post.")
async def write_post(ctx: ToolContext, topic: str = Field(description="about what")) -> ToolResponse[Blog]:
    """Write it."""
    return ToolResponse(Blog(title=f"{topic} {ctx.context['style']}"), artifact_id="abc-123", content="a post")


@tool(idempotent=True, desc="Returns no artifact.")
async def bare() -> dict[str, str]:
    """Return what it likes, also what would control a terminal."""
    return {"\x1b[31m": "red"}


@pytest.fixture
async def _served(bus: Bus, server: NatsServer) -> AsyncIterator[None]:
    """A tool runner, and the tools under their credential."""
    stop, catalogue = asyncio.Event(), await Catalogue(bus).start()
    async with tool_runner(server), asyncio.TaskGroup() as serving:
        for each in (write_post, bare):
            login = server.login(f"tool_{each.name}")
            serving.create_task(serve([each], server.url, **login, stop=stop, grace_s=0.1, check=None))
        await wait_until(lambda: {*TOOLS} <= catalogue.live().keys(), what="both are offered")
        yield
        stop.set()
    await catalogue.stop()
    assert server.violations() == []


@pytest.mark.usefixtures("_served")
async def test_a_tool_is_checked(tools: Operates) -> None:
    """With one real call where it is confirmed; the exit code says whether anything failed."""
    code, shown = await tools("check", "write_post")
    assert code == 0, shown
    assert "✓ announced: by 1 instance," in shown
    assert "✗" not in shown
    given = ("check", "write_post", "--args", '{"topic": "AI"}', "--context", '{"style": "short"}')
    code, shown = await tools(*given)
    assert code == 1
    assert "✗ call: not made: the tool has side effects (write)\n  give --yes" in shown
    code, shown = await tools(*given, "--yes", "-o", "json")
    assert code == 0, shown
    found = {line["name"]: line for line in json.loads(shown)}
    assert found["artifact_id"] == {"name": "artifact_id", "status": "ok", "finding": "abc-123", "mend": ""}
    assert {line["status"] for name, line in found.items() if name.startswith("_metadata")} == {"ok"}
    code, shown = await tools("check", "bare", "--args", "{}")
    assert (code, "✗" in shown, "! " in shown) == (0, False, False), shown
    code, shown = await tools("check", "bare", "--args", "{}", "--standard")
    assert code == 1
    assert "✗ standard form: the result has no artifact_id, artifact, _metadata\n  return a ToolResponse" in shown
    assert "\x1b" not in shown


async def test_what_cannot_be_checked(tools: Operates) -> None:
    """No tool runner, a name that no tool can have, arguments that are no object: each in one sentence."""
    code, shown = await tools("check", "write_post")
    assert (code, "no tool runner answers" in shown) == (1, True)
    code, shown = await tools("check", "a b")
    assert (code, shown.count("\n")) == (1, 1)
    for text in ("{", "[1]"):
        code, shown = await tools("check", "write_post", "--args", text)
        assert (code, "--args" in shown) == (2, True)
