"""`runwire tools accept | declare | diff | forget`, as an operator calls them while a tool runner works."""

from pathlib import Path

import pytest

from contracts.tools.messages import AcceptedSpecs, RefusedTool, ToolSpec
from contracts.wire import keys
from contracts.wire.rights import OPERATOR
from runwire.credentials import Credential
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.tools.catalogue import Catalogue, refused_tools
from tests.runwire.cli.conftest import Operates, service, tool_runner
from tests.runwire.conftest import runwire
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("_quiet_services")
TOOLS = ["weather"]
OLD, NEW = ToolSpec(name="weather", description="old"), ToolSpec(name="weather", description="\x1b[31mnew")
A, B, C = "a" * 24, "b" * 24, "c" * 24


@pytest.fixture
def catalogue(bus: Bus) -> Bucket:
    return Bucket(bus, keys.CATALOGUE_BUCKET, attempts=3)


async def accepted(catalogue: Bucket) -> list[str]:
    found = (await catalogue.get(keys.accepted_specs("weather"))).parsed(AcceptedSpecs)
    return found.digests if found else []


async def test_a_rollout_is_accepted(bus: Bus, catalogue: Bucket, server: NatsServer, tools: Operates) -> None:
    """Each under its own rights. The tool runner offers the new specification without a restart."""
    offered = await Catalogue(bus).start()
    async with tool_runner(server):
        async with service(server, "weather", OLD):
            await wait_until(lambda: offered.live().get("weather") == OLD, what="the old one is offered")
            async with service(server, "weather", NEW, "2.0.0"):
                await wait_until(lambda: refused_tools(bus), what="the new one waits")
                code, shown = await tools("diff", "weather")
                assert code == 0
                assert f"--- accepted {OLD.digest()}\n+++ announced {NEW.digest()}\n" in shown
                assert '\n-  "description": "old",\n+  "description": "\\u001b[31mnew",\n' in shown
                said = f"weather: {NEW.digest()} is accepted; before it: {OLD.digest()}\n"
                assert await tools("accept", "weather") == (0, said)
                await wait_until(lambda: offered.live().get("weather") == NEW, what="the new one is offered")
        said = f"weather: {NEW.digest()} is accepted already\n"
        assert await tools("accept", "weather", NEW.digest()) == (0, said)
        assert await accepted(catalogue) == [OLD.digest(), NEW.digest()]
    await offered.stop()


async def test_a_tool_is_declared_while_everything_runs(
    server: NatsServer, catalogue: Bucket, tools: Operates, tmp_path: Path
) -> None:
    """It is offered at once and by a tool runner that starts later, until it is forgotten. A wrong one is refused."""
    file, wrong = tmp_path / "tools.toml", tmp_path / "wrong.json"
    file.write_text('[[tools]]\nname = "weather"\ndescription = "old"\n')
    wrong.write_text('{"name": "wrong", "input_schema": {"$ref": "#/nowhere"}}')

    async def is_offered() -> bool:
        return (await catalogue.get(keys.live_tool("weather"))).parsed(ToolSpec) == OLD

    async def is_gone() -> bool:
        return not await is_offered()

    async with tool_runner(server, trust_tools=False):
        code, said = await tools("declare", str(file))
        assert (code, said.split(":")[0], await is_offered()) == (0, "weather", True), said
        code, said = await tools("declare", str(wrong))
        assert (code, "wrong is refused: its declaration cannot be used: input_schema" in said) == (1, True), said
    await catalogue.delete(keys.live_tool("weather"))
    async with tool_runner(server, trust_tools=False):
        await wait_until(is_offered, what="it is offered after a restart")
        assert (await tools("forget", "weather"))[0] == 0
        await wait_until(is_gone, what="it is offered no more")


@pytest.mark.parametrize(
    ("refused", "arguments", "said"),
    [
        (None, [], "no tool weather has announced itself"),
        (None, ["9F4C"], "'9F4C' is not a digest: expected [0-9a-f]{24}"),
        ([A, B, C], [], f"several specifications of weather wait, name one of them: {A}, {B}, {C}"),
        ([], [], "weather is refused for another reason: its schema is wrong"),
    ],
    ids=["unknown", "no digest", "several", "another reason"],
)
async def test_what_cannot_be_accepted_is_one_sentence(
    catalogue: Bucket, tools: Operates, refused: list[str] | None, arguments: list[str], said: str
) -> None:
    """It says what to do instead, and nothing is written. `refused`: what waits, by the tool runner."""
    if refused is not None:
        listed = RefusedTool(name="weather", reason="its schema is wrong", digests=refused)
        await catalogue.put(keys.refused_tool("weather"), listed)
    code, printed = await tools("accept", "weather", *arguments)
    assert (code, printed.count("\n"), said in printed) == (1, 1, True), printed
    assert await accepted(catalogue) == []


async def test_the_login_of_the_operator(
    catalogue: Bucket, tools: Operates, server: NatsServer, tmp_path: Path
) -> None:
    """From a credential file, or from the data folder; a tool's credential is refused with what to do."""
    file, elsewhere = tmp_path / "operator.json", {"RUNWIRE_DATA_DIR": str(tmp_path)}
    file.write_text(Credential(server.url, OPERATOR, server.passwords[OPERATOR]).as_json())
    as_tool = Credential(server.url, "tool_weather", server.passwords["tool_weather"])
    assert (await tools("accept", "weather", A, RUNWIRE_NATS_CREDENTIALS=str(file), **elsewhere))[0] == 0
    assert (await tools("accept", "weather", B))[0] == 0
    code, printed = await tools("accept", "weather", C, RUNWIRE_NATS_URL=as_tool.as_url(), **elsewhere)
    assert code == 1
    assert "runwire credentials operator" in printed
    assert as_tool.password not in printed
    assert await accepted(catalogue) == [A, B]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """One sentence, at once."""
    ended = runwire("tools", "accept", "weather", A, data=tmp_path, RUNWIRE_NATS_URL="nats://127.0.0.1:1")
    assert (ended.returncode, "NATS at 127.0.0.1:1 does not answer" in ended.stderr) == (1, True)
