"""What `runwire doctor` says of tools that are not offered, on a server with the users of a deployment."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import nats
import nats.micro
import pytest
from nats.micro.request import Request

from contracts.tools.messages import RefusedTool, ToolSpec
from runwire.cli.operator import server_checks, tool_checks
from tests.support.buses import processed
from tests.support.nats_server import NatsServer

USER = "tool_weather"


@pytest.fixture(scope="module")
def _shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NatsServer, Path]]:
    folder = tmp_path_factory.mktemp("nats")
    with NatsServer(folder, identities=lambda known: known.add_tools("weather")) as found:
        yield found, folder


@pytest.fixture
def server(_shared_server: tuple[NatsServer, Path], monkeypatch: pytest.MonkeyPatch) -> NatsServer:
    """A server whose folder is the data folder; there is a credential for `weather`."""
    found, folder = _shared_server
    monkeypatch.setenv("RUNWIRE_DATA_DIR", str(folder))
    monkeypatch.setenv("RUNWIRE_NATS_URL", found.url)
    return found


async def findings(*offered: str) -> list[str]:
    """What is found besides the list of what is offered."""
    checks = await tool_checks(offered, [], is_of_data_folder=True)
    assert checks[-1].status == ("ok" if offered else "warning")
    assert all(check.status == "warning" and "when-a-tool-does-not-appear" in check.mend for check in checks[:-1])
    return [check.finding for check in checks[:-1]]


@contextlib.asynccontextmanager
async def connected(
    server: NatsServer, service: str, endpoint: str, spec: ToolSpec | None, user: str
) -> AsyncIterator[None]:
    """A micro service with one endpoint, whatever its names are."""

    async def ignore(_request: Request) -> None:
        """Never answer."""

    async def on_error(_error: Exception) -> None:
        """What the server denies."""

    async with await nats.connect(server.url, error_cb=on_error, **server.login(user)) as client:
        added = await nats.micro.add_service(client, name=service, version="1.0.0")
        metadata = {"runwire.spec": spec.model_dump_json()} if spec else {}
        await added.add_endpoint(name="a", subject=f"tool.{endpoint}", handler=ignore, metadata=metadata)
        await processed(client)
        yield


@pytest.mark.usefixtures("server")
async def test_no_process_is_connected() -> None:
    """Not started, or its login is refused. Where everything with a credential is offered, nothing is missing."""
    assert await findings("weather") == []
    assert await findings() == [f"weather is not offered: no process serves it as the NATS user {USER}"]


@pytest.mark.parametrize(
    ("service", "endpoint", "user", "said"),
    [
        (
            "weather",
            "weather",
            USER,
            [f"weather is not offered: it is connected as {USER}; the log of the tool runner says more"],
        ),
        (
            "wether",  # NATS denies its subjects, so no tool runner receives its announcement.
            "wether",
            USER,
            [
                f"weather is not offered: no process serves it as the NATS user {USER}",
                "wether is not offered: it is connected, and no credential is for this name, or it has just started",
            ],
        ),
        (
            "weather",
            None,
            USER,
            ["weather is not offered: it is connected, and no endpoint of it has the metadata runwire.spec"],
        ),
        (
            "weather",
            "rain",
            "local",
            ["weather is not offered: it announces rain; a micro service has the name of its tool"],
        ),
    ],
    ids=["connected", "misspelt", "no specification", "another name"],
)
async def test_what_is_connected_and_not_offered(
    server: NatsServer, service: str, endpoint: str | None, user: str, said: list[str]
) -> None:
    """The names of the service, of its endpoint and of its credential are compared."""
    spec = ToolSpec(name=endpoint) if endpoint else None
    async with connected(server, service, endpoint or "weather", spec, user):
        assert await findings() == said


def test_each_mcp_server_has_a_line() -> None:
    """With what is wrong with it, also where it offers nothing."""
    offered = [ToolSpec(name=name, tags=["mcp:files"]) for name in ("a", "b")] + [ToolSpec(name="c")]
    refused = [RefusedTool(name="mcp-search", reason="it cannot be reached"), RefusedTool(name="d", reason="odd")]
    found = [(each.name, each.status, each.finding) for each in server_checks(offered, refused, "failed")]
    assert found == [
        ("files", "ok", "2 tools are offered"),
        ("search", "failed", "0 tools are offered; it cannot be reached"),
    ]
