"""`runwire tools accept | forget | digest`, as an operator calls them while a tool runner works."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import nats
import nats.micro
import pytest
from nats.aio.client import Client
from nats.micro.request import Request
from pydantic import SecretStr

from contracts.tools.messages import AcceptedSpecs, RefusedTool, ToolSpec
from contracts.wire import keys
from contracts.wire.rights import OPERATOR
from contracts.wire.subject import TOOL_RUNNER
from runwire.credentials import Credential
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.tools.catalogue import Catalogue, refused_tools
from services.tool_runner.app import running
from services.tool_runner.settings import ToolRunnerSettings
from tests.runwire.conftest import runwire
from tests.support.buses import connected, provisioned
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("_quiet_services")
OLD, NEW = ToolSpec(name="weather", description="old"), ToolSpec(name="weather", description="\x1b[31mnew")
A, B, C = "a" * 24, "b" * 24, "c" * 24


async def called(*arguments: str, data: Path, **env: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed."""
    ended = await asyncio.to_thread(runwire, *arguments, data=data, **env)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[NatsServer]:
    """A server with the users of a deployment; there is a credential for `weather`."""
    with NatsServer(data, identities=lambda known: known.add_tools("weather")) as found:
        yield found


class Operator:
    """Calls commands in the data folder of one server."""

    def __init__(self, bus: Bus, url: str, folder: Path) -> None:
        self.bus = bus
        self.catalogue = Bucket(bus, keys.CATALOGUE_BUCKET, attempts=3)
        self._url = url
        self._folder = folder

    async def calls(self, *arguments: str) -> tuple[int, str]:
        return await called("tools", *arguments, data=self._folder, RUNWIRE_NATS_URL=self._url)

    async def accepted(self) -> list[str]:
        entry = await self.catalogue.get(keys.accepted_specs("weather"))
        found = entry.parsed(AcceptedSpecs)
        return found.digests if found else []

    async def refuse(self, *digests: str) -> None:
        """List `weather` as refused, as a tool runner does; without a digest, for its schema."""
        refused = RefusedTool(name="weather", reason="its schema is wrong", digests=list(digests))
        await self.catalogue.put(keys.refused_tool("weather"), refused)


def settings(server: NatsServer, user: str) -> ToolRunnerSettings:
    password = SecretStr(server.passwords[user])
    return ToolRunnerSettings(
        nats_url=server.url, nats_user=user, nats_password=password, discover_s=0.3, graceful_timeout_s=0.1
    )


@pytest.fixture
async def operator(server: NatsServer, data: Path) -> AsyncIterator[Operator]:
    """An operator of the server, where all streams are and nothing is accepted."""
    async with provisioned(server.url, OPERATOR, settings(server, OPERATOR)) as bus:
        async with await nats.connect(server.url, **server.login(OPERATOR)) as client:
            await client.jetstream().purge_stream(f"KV_{keys.CATALOGUE_BUCKET}")
        yield Operator(bus, server.url, data)


@contextlib.asynccontextmanager
async def announced(server: NatsServer, spec: ToolSpec, version: str) -> AsyncIterator[Client]:
    """Serve a tool under its credential; it never answers."""

    async def ignore(_request: Request) -> None:
        """Never answer."""

    async with await nats.connect(server.url, **server.login("tool_weather")) as client:
        service = await nats.micro.add_service(client, name=spec.name, version=version)
        metadata = {"runwire.spec": spec.model_dump_json()}
        await service.add_endpoint(
            name="a", subject=f"tool.{spec.name}", queue_group=spec.name, handler=ignore, metadata=metadata
        )
        yield client


async def test_a_rollout_is_accepted(operator: Operator, server: NatsServer) -> None:
    """Each under its own rights. The tool runner offers the new specification without a restart."""
    configured = settings(server, TOOL_RUNNER)
    catalogue = await Catalogue(operator.bus).start()
    async with connected(server.url, TOOL_RUNNER, configured) as runner, running(runner, configured, []):
        async with announced(server, OLD, "1.0.0"):
            await wait_until(lambda: catalogue.live().get("weather") == OLD, what="the old one is offered")
            async with announced(server, NEW, "2.0.0"):
                await wait_until(lambda: refused_tools(operator.bus), what="the new one waits")

                code, shown = await operator.calls("diff", "weather")
                assert code == 0
                assert f"--- accepted {OLD.digest()}\n+++ announced {NEW.digest()}\n" in shown
                assert '\n-  "description": "old",\n+  "description": "\\u001b[31mnew",\n' in shown
                assert await operator.calls("accept", "weather") == (
                    0,
                    f"weather: {NEW.digest()} is accepted; before it: {OLD.digest()}\n",
                )
                await wait_until(
                    # Before the accepted digests are read again in any case, which is every five seconds.
                    lambda: catalogue.live().get("weather") == NEW,
                    timeout=4,
                    what="the new one is offered",
                )
        assert await operator.calls("accept", "weather", NEW.digest()) == (
            0,
            f"weather: {NEW.digest()} is accepted already\n",
        )
        assert await operator.accepted() == [OLD.digest(), NEW.digest()]
        assert runner.denied is None
    await catalogue.stop()


async def test_a_tool_is_declared_while_everything_runs(server: NatsServer, operator: Operator, tmp_path: Path) -> None:
    """It is offered at once and by a tool runner that starts later, until it is forgotten. A wrong one is refused."""
    file, wrong = tmp_path / "tools.toml", tmp_path / "wrong.json"
    file.write_text('[[tools]]\nname = "weather"\ndescription = "old"\n')
    wrong.write_text('{"name": "wrong", "input_schema": {"$ref": "#/nowhere"}}')
    configured = settings(server, TOOL_RUNNER).model_copy(update={"trust_tools": False})

    async def is_offered() -> bool:
        return (await operator.catalogue.get(keys.live_tool("weather"))).parsed(ToolSpec) == OLD

    async with connected(server.url, TOOL_RUNNER, configured) as runner:
        async with running(runner, configured, []):
            code, said = await operator.calls("declare", str(file))
            assert (code, said.split(":")[0], await is_offered()) == (0, "weather", True), said
            code, said = await operator.calls("declare", str(wrong))
            assert (code, "wrong is refused: its declaration cannot be used: input_schema" in said) == (1, True), said
        await operator.catalogue.delete(keys.live_tool("weather"))
        async with running(runner, configured, []):
            await wait_until(is_offered, what="it is offered after a restart")
            assert (await operator.calls("forget", "weather"))[0] == 0
            await wait_until(lambda: _not(is_offered()), what="it is offered no more")
        assert runner.denied is None


async def _not(asked: Awaitable[bool]) -> bool:
    return not await asked


async def test_what_cannot_be_accepted_is_one_sentence(operator: Operator) -> None:
    """It says what to do instead, and nothing is written."""
    for arguments, said in (
        (("weather",), "no tool weather has announced itself"),
        (("weather", "9F4C"), "'9F4C' is not a digest: expected [0-9a-f]{24}"),
    ):
        code, printed = await operator.calls("accept", *arguments)
        assert (code, printed.count("\n")) == (1, 1), printed
        assert said in printed
    await operator.refuse(A, B, C)
    assert (
        f"several specifications of weather wait, name one of them: {A}, {B}, {C}"
        in ((await operator.calls("accept", "weather"))[1])
    )
    await operator.refuse()
    assert (
        "weather is refused for another reason: its schema is wrong" in ((await operator.calls("accept", "weather"))[1])
    )
    assert await operator.accepted() == []


async def test_the_login_of_the_operator(operator: Operator, server: NatsServer, tmp_path: Path) -> None:
    """From a credential file, or from the data folder; a tool's credential is refused with what to do."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = tmp_path / "operator.json"
    file.write_text(Credential(server.url, OPERATOR, server.passwords[OPERATOR]).as_json())
    as_tool = Credential(server.url, "tool_weather", server.passwords["tool_weather"])

    async def accepts(digest: str, **env: str) -> tuple[int, str]:
        return await called("tools", "accept", "weather", digest, data=elsewhere, **env)

    assert (await accepts(A, RUNWIRE_NATS_CREDENTIALS=str(file)))[0] == 0
    assert (await operator.calls("accept", "weather", B))[0] == 0
    code, printed = await accepts(C, RUNWIRE_NATS_URL=as_tool.as_url())
    assert code == 1
    assert "runwire credentials operator" in printed
    assert as_tool.password not in printed
    assert await operator.accepted() == [A, B]


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """One sentence, at once."""
    code, printed = await called("tools", "accept", "weather", A, data=tmp_path, RUNWIRE_NATS_URL="nats://127.0.0.1:1")
    assert code == 1
    assert "NATS at 127.0.0.1:1 does not answer" in printed
