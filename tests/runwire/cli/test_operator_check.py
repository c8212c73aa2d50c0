"""`runwire tools check`, as an operator calls it: each process as its own user of NATS."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from contracts.wire.rights import OPERATOR
from contracts.wire.subject import TOOL_RUNNER
from runwire import ToolContext, ToolResponse, tool
from runwire.serving import serve
from services.messaging.connection import Bus
from services.shared.tools.catalogue import Catalogue
from services.tool_runner.app import running
from tests.runwire.cli.test_acceptance import called, settings
from tests.support.buses import connected, provisioned
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until


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


pytestmark = pytest.mark.usefixtures("_quiet_services")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server with the users of a deployment; each tool has a credential."""
    users = [each.name for each in (write_post, bare)]
    with NatsServer(tmp_path / "data", identities=lambda known: [*map(known.add_tools, users)]) as found:
        yield found
    assert found.violations() == []


@pytest.fixture
async def operator(server: NatsServer) -> AsyncIterator[Bus]:
    """An operator of the server, where all streams are."""
    async with provisioned(server.url, OPERATOR, settings(server, OPERATOR)) as bus:
        yield bus


@pytest.fixture
async def served(operator: Bus, server: NatsServer) -> AsyncIterator[None]:
    """A tool runner, and the tools under their credential."""
    configured, stop = settings(server, TOOL_RUNNER), asyncio.Event()
    catalogue = await Catalogue(operator).start()
    serving = [
        asyncio.create_task(
            serve([each], server.url, **server.login(f"tool_{each.name}"), stop=stop, grace_s=0.1, check=None)
        )
        for each in (write_post, bare)
    ]
    async with connected(server.url, TOOL_RUNNER, configured) as runner, running(runner, configured, []):
        await wait_until(lambda: {"write_post", "bare"} <= catalogue.live().keys(), what="both are offered")
        yield
        stop.set()
        await asyncio.gather(*serving)
        assert runner.denied is None
    await catalogue.stop()


@pytest.mark.usefixtures("served")
async def test_a_tool_is_checked(server: NatsServer, tmp_path: Path) -> None:
    """With one real call where it is confirmed; the exit code says whether anything failed."""

    async def check(*arguments: str) -> tuple[int, str]:
        return await called("tools", "check", *arguments, data=tmp_path / "data", RUNWIRE_NATS_URL=server.url)

    code, shown = await check("write_post")
    assert code == 0, shown
    assert "✓ announced: by 1 instance," in shown
    assert "✗" not in shown
    given = ("--args", '{"topic": "AI"}', "--context", '{"style": "short"}')
    code, shown = await check("write_post", *given)
    assert code == 1
    assert "✗ call: not made: the tool has side effects (write)\n  give --yes" in shown
    code, shown = await check("write_post", *given, "--yes", "-o", "json")
    assert code == 0, shown
    found = {line["name"]: line for line in json.loads(shown)}
    assert found["artifact_id"] == {"name": "artifact_id", "status": "ok", "finding": "abc-123", "mend": ""}
    assert {line["status"] for name, line in found.items() if name.startswith("_metadata")} == {"ok"}
    code, shown = await check("bare", "--args", "{}")
    assert (code, "✗" in shown, "! " in shown) == (0, False, False), shown
    code, shown = await check("bare", "--args", "{}", "--standard")
    assert code == 1
    assert "✗ standard form: the result has no artifact_id, artifact, _metadata\n  return a ToolResponse" in shown
    assert "\x1b" not in shown


async def test_what_cannot_be_checked(operator: Bus, server: NatsServer, tmp_path: Path) -> None:
    """No tool runner, a name that no tool can have, arguments that are no object: each in one sentence."""
    assert operator.is_connected

    async def check(*arguments: str) -> tuple[int, str]:
        return await called("tools", "check", *arguments, data=tmp_path / "data", RUNWIRE_NATS_URL=server.url)

    code, shown = await check("write_post")
    assert (code, "no tool runner answers" in shown) == (1, True)
    code, shown = await check("a b")
    assert (code, shown.count("\n")) == (1, 1)
    for text in ("{", "[1]"):
        code, shown = await check("write_post", "--args", text)
        assert (code, "--args" in shown) == (2, True)
