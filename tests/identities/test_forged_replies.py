"""A tool against the real tool runner: nobody but the tool itself answers its calls, or speaks for it."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from nats.aio.msg import Msg

from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from runwire.serving import serve
from runwire.tools import Tool, tool
from services.messaging.kv import Bucket
from services.shared.tools.catalogue import Catalogue
from services.tool_runner.app import running
from services.tool_runner.settings import ToolRunnerSettings
from tests.identities.scene import Attacker, Scene
from tests.support.waiting import wait_until
from tests.tool_runner.conftest import Planner

FORGED = b'"forged"'


@dataclass
class Product:
    """The real tool runner, and two served tools: `weather` answers once `go` is set, `geo` at once.

    `calls`: what was sent to `weather`.
    """

    scene: Scene
    planner: Planner
    go: threading.Event = field(default_factory=threading.Event)
    calls: list[Msg] = field(default_factory=list)

    async def called(self) -> tuple[str, str]:
        """Call `weather`; return the run, and the reply subject of the call."""
        before = len(self.calls)
        run = await self.planner.request("weather", {})
        await wait_until(lambda: self.calls[before:], what="the tool is called")
        return run, self.calls[before].reply

    async def answered(self, run: str) -> object:
        """Let the tool answer, and return the outcome of the call."""
        self.go.set()
        finished = await self.planner.outcome(run)
        return finished.observation

    async def offered(self) -> ToolSpec:
        entry = await Bucket(self.scene.operator, keys.CATALOGUE_BUCKET).get(keys.live_tool("weather"))
        return ToolSpec.model_validate_json(entry.data)


@contextlib.asynccontextmanager
async def product(scene: Scene, discover_s: float = 0.1) -> AsyncIterator[Product]:
    """The parts of the product, each as its own user."""
    settings = ToolRunnerSettings(
        **scene.server.settings("tool_runner"),
        discover_s=discover_s,
        graceful_timeout_s=0.1,
        settling_s=0.5,
        trust_tools=True,
    )
    runner, planner_bus = await scene.bus_of("tool_runner", settings), await scene.bus_of("planner")
    catalogue = await Catalogue(planner_bus).start()
    found = Product(scene, Planner(planner_bus, catalogue))

    @tool
    def weather() -> str:
        found.go.wait(60)
        return "sunny"

    @tool
    def geo() -> str:
        return "here"

    async def on_call(message: Msg) -> None:
        found.calls.append(message)

    await scene.operator.nc.subscribe("tool.weather", cb=on_call)
    stop, serving = asyncio.Event(), []

    def start(served: Tool[..., str], user: str) -> None:
        login = scene.server.login(user)
        serving.append(
            asyncio.create_task(serve([served], scene.server.url, stop=stop, grace_s=0.1, check=None, **login))
        )

    start(weather, "tool_weather")
    start(geo, "tool_geo")
    async with running(runner, settings, []):
        await found.planner.spec("weather")
        await found.planner.spec("geo")
        yield found
    found.go.set()
    stop.set()
    await asyncio.gather(*serving)
    await catalogue.stop()
    await wait_until(lambda: not runner.denied and not planner_bus.denied, what="no service is denied anything")


@pytest.fixture
async def found(guarded: Scene) -> AsyncIterator[Product]:
    """With the users of a deployment."""
    async with product(guarded) as made:
        yield made


@pytest.fixture
async def without_users(unguarded: Scene) -> AsyncIterator[Product]:
    """On a server without users."""
    async with product(unguarded) as made:
        yield made


async def _forge(found: Product) -> tuple[Attacker, object]:
    run, reply = await found.called()
    me = await found.scene.as_("tool_geo")
    await me.publish(reply, FORGED)
    return me, await found.answered(run)


async def test_no_other_tool_answers_a_call(found: Product) -> None:
    """Even one that knows its reply subject."""
    me, observation = await _forge(found)
    assert observation == "sunny"
    assert "permissions violation" in me.complaints[0].lower()


async def test_without_users_another_tool_answers_a_call(without_users: Product) -> None:
    """So the attack is one."""
    assert (await _forge(without_users))[1] == "forged"
