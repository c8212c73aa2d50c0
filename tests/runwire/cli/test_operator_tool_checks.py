"""What `runwire doctor` says of tools that are not offered, on a server with the users of a deployment."""

from pathlib import Path

import pytest

from contracts.tools.messages import RefusedTool, ToolSpec
from runwire.cli.operator import server_checks, tool_checks
from tests.runwire.cli.conftest import service
from tests.support.nats_server import NatsServer

TOOLS = ["weather"]
USER = "tool_weather"
NO_PROCESS = f"weather is not offered: no process serves it as the NATS user {USER}"


@pytest.fixture(autouse=True)
def _named(server: NatsServer, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the server and its data folder."""
    monkeypatch.setenv("RUNWIRE_DATA_DIR", str(data))
    monkeypatch.setenv("RUNWIRE_NATS_URL", server.url)


async def findings(*offered: str) -> list[str]:
    """What is found besides the list of what is offered."""
    checks = await tool_checks(offered, [], is_of_data_folder=True)
    assert checks[-1].status == ("ok" if offered else "warning")
    assert all(check.status == "warning" and "when-a-tool-does-not-appear" in check.mend for check in checks[:-1])
    return [check.finding for check in checks[:-1]]


async def test_no_process_is_connected() -> None:
    """Not started, or its login is refused. Where everything with a credential is offered, nothing is missing."""
    assert await findings("weather") == []
    assert await findings() == [NO_PROCESS]


@pytest.mark.parametrize(
    ("name", "endpoint", "user", "said"),
    [
        ("weather", "weather", USER, f"it is connected as {USER}; the log of the tool runner says more"),
        ("weather", None, USER, "it is connected, and no endpoint of it has the metadata runwire.spec"),
        ("weather", "rain", "local", "it announces rain; a micro service has the name of its tool"),
        # NATS denies its subjects, so no tool runner receives its announcement.
        ("wether", "wether", USER, "it is connected, and no credential is for this name, or it has just started"),
    ],
    ids=["connected", "no specification", "another name", "misspelt"],
)
async def test_what_is_connected_and_not_offered(
    server: NatsServer, name: str, endpoint: str | None, user: str, said: str
) -> None:
    """The names of the service, of its endpoint and of its credential are compared."""
    spec = ToolSpec(name=endpoint) if endpoint else None
    async with service(server, name, spec, endpoint=endpoint or "weather", user=user):
        assert await findings() == [*[NO_PROCESS] * (name != "weather"), f"{name} is not offered: {said}"]


def test_each_mcp_server_has_a_line() -> None:
    """With what is wrong with it, also where it offers nothing."""
    offered = [ToolSpec(name=name, tags=["mcp:files"]) for name in ("a", "b")] + [ToolSpec(name="c")]
    refused = [RefusedTool(name="mcp-search", reason="it cannot be reached"), RefusedTool(name="d", reason="odd")]
    found = [(each.name, each.status, each.finding) for each in server_checks(offered, refused, "failed")]
    assert found == [
        ("files", "ok", "2 tools are offered"),
        ("search", "failed", "0 tools are offered; it cannot be reached"),
    ]
