"""A direct call at each of its points: a process dies, is stopped or loses NATS, and nothing is lost or done twice.

Each test strikes at one message: the tap between a process and NATS sees it before the server does.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.nats_tap import pass_on
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.model import Plan
from tests.system.sound import follow, judged_sound
from tests.system.strikes import Hits, Strike, dies, for_one_test, seen, stops
from tests.system.system import System
from tests.system.traces import Execution, RunEvidence

pytestmark = pytest.mark.sample(4, of="file")

_DIRECT_CALL = re.compile(r"direct\.(\w+)\.call")
_INSTANCE = re.compile(rb'"instance":\s*"(\w+)"')


@pytest.fixture
def system(shared_system: System) -> Iterator[System]:
    with for_one_test(shared_system, new_planners=True) as found:
        yield found


@dataclass
class Scene:
    """A system in which each planner makes direct calls, and one run of it."""

    system: System
    client: Client
    bus: Bus
    instances: dict[str, str]
    """Id of an instance of tool_runner -> its process."""
    run: RunEvidence = field(default_factory=lambda: RunEvidence(""))
    plan: Plan = field(default_factory=Plan)

    def strike(self, kind: str, hits: Hits, act: Callable[[Strike], bool]) -> Strike:
        """Strike at the first such message of a planner or tool runner."""
        return Strike(self.system, kind, hits, act)

    async def begin(self, tool: str, call_ms: int = 0, delay_ms: int = 0) -> None:
        self.plan = Plan(turns=((tool,),), call_ms=call_ms, delay_ms=delay_ms, nth=new_id())
        self.run = RunEvidence(await self.client.ask(self.plan.query, key=self.plan.nth))

    async def tool_works(self) -> Execution:
        await wait_until(lambda: self.system.executions(self.run.run_id), timeout=20, what="the tool works")
        return self.system.executions(self.run.run_id)[0]

    async def end(self) -> None:
        assert (await self.client.follow(self.run.run_id, self.run.seen))["type"] == "done"

    async def check(self, outcome: str, executions: int) -> None:
        """Every promise holds, the call was announced as direct, ended so, and was begun so often.

        `outcome`: `succeeded`, or the code of a failure.
        """
        await judged_sound(self.bus, self.system, self.run)
        log = self.run.log
        [call] = [call for event in log if event["type"] == "step" for call in event.get("calls") or []]
        assert call["direct"]
        outcomes = [event for event in log if event["type"] == "observed"]
        ends = [(event.get("failure") or {}).get("code") or event["status"] for event in outcomes]
        assert (ends, len(self.system.executions(self.run.run_id))) == ([outcome], executions)


@pytest.fixture
async def scene(system: System, client: Client, bus: Bus) -> Scene:
    """The system, once every planner makes direct calls."""
    found, callers = dict[str, str](), set[str]()

    def note(name: str, subject: str, body: bytes) -> bool:
        if subject == "direct.here" and (instance := _INSTANCE.search(body)):
            found[instance[1].decode()] = name
        elif is_direct_call(subject, body):
            callers.add(name)
        return True

    for name, tap in system.taps.items():
        tap.on_publish = partial(note, name)

    async def is_ready() -> bool:
        await follow(client, Plan(turns=(("often",), ("once",)), nth=new_id()))
        return {*callers, *found.values()} == set(system.taps)

    await wait_until(is_ready, timeout=60, what="both planners make direct calls")
    for tap in system.taps.values():
        tap.on_publish = pass_on
    return Scene(system, client, bus, found)


def is_direct_call(subject: str, _body: bytes) -> bool:
    return _DIRECT_CALL.fullmatch(subject) is not None


def is_request_to(tool: str) -> Hits:
    return lambda subject, _: subject == f"tool.{tool}"


tools = pytest.mark.parametrize("tool", ["often", "once"])


@tools
@pytest.mark.parametrize("kind", ["planner", "tool_runner"])
async def test_one_dies_before_it_sends_the_call_on(kind: str, tool: str, scene: Scene) -> None:
    """The step is stored, so the other planner learns that no instance has received the call, and sends it.

    Of a tool runner nobody else knows that it did not call the tool, so the outcome of a call that may not be repeated
    is unknown.
    """
    is_planner = kind == "planner"
    strike = scene.strike(kind, is_direct_call if is_planner else is_request_to(tool), dies)
    await scene.begin(tool)
    await strike.struck()
    await scene.end()
    await scene.check(*("succeeded", 1) if is_planner or tool == "often" else ("outcome_unknown", 0))


@tools
@pytest.mark.parametrize("kind", ["planner", "tool_runner", "nats"])
async def test_one_dies_while_the_tool_works(kind: str, tool: str, scene: Scene) -> None:
    """Who goes on learns that the call was received, or finds the tool's instance, and gets the outcome.

    Of NATS the reply is lost with its connection; the outcome comes once the server is back.
    """
    sent = scene.strike("planner", is_direct_call, seen)
    if kind == "tool_runner":
        sent = scene.strike(kind, is_request_to(tool), seen)
    await scene.begin(tool, call_ms=700)
    await scene.tool_works()
    if kind == "nats":
        scene.system.nats.kill()
        await asyncio.to_thread(scene.system.nats.start)
    else:
        scene.system.stack.kill(await sent.struck())
    await scene.end()
    await scene.check("succeeded", 1)


@tools
async def test_a_planner_dies_after_it_stored_the_outcome(tool: str, scene: Scene) -> None:
    """The next request to the model is announced in the same record; the other planner makes it again."""
    await scene.begin(tool, delay_ms=400)
    await wait_until(lambda: len(scene.system.model.asked(scene.plan)) > 1, what="the model is asked for the answer")
    scene.system.stack.kill(scene.system.planner_of(scene.system.model.asked(scene.plan)[-1].headers["authorization"]))
    await scene.end()
    await scene.check("succeeded", 1)


@tools
async def test_a_tool_dies_at_work(tool: str, scene: Scene) -> None:
    """Another instance does the call if that is safe."""
    await scene.begin(tool, call_ms=800)
    pid = (await scene.tool_works()).pid
    scene.system.stack.kill(
        next(name for name in scene.system.stack.names("tools") if scene.system.stack.pid(name) == pid)
    )
    await scene.end()
    await scene.check(*{"once": ("outcome_unknown", 1), "often": ("succeeded", 2)}[tool])


@tools
@pytest.mark.parametrize("stopped_s", [3.0, 6.0])
async def test_a_planner_stopped_before_it_sends_the_call_calls_nothing_when_it_goes_on(
    tool: str, stopped_s: float, scene: Scene
) -> None:
    """The other planner has sent the call by then; its late request is declined."""
    strike = scene.strike("planner", is_direct_call, stops)
    await scene.begin(tool)
    name = await strike.struck()
    following = asyncio.create_task(scene.end())
    await asyncio.sleep(stopped_s)
    scene.system.stack.thaw(name)
    strike.released.set()
    await following
    await follow(scene.client, Plan(turns=((tool,),), nth=new_id()))
    await scene.check("succeeded", 1)


@tools
@pytest.mark.parametrize("stopped_s", [1.5, 3.0, 4.5])
async def test_a_tool_runner_stopped_before_it_reads_the_call_calls_nothing_when_it_goes_on(
    tool: str, stopped_s: float, scene: Scene
) -> None:
    """It has not said that it begins: the planner sends the call to another one, which may call the tool."""
    stopped: list[str] = []

    def stops_the_called(strike: Strike) -> bool:
        found = _DIRECT_CALL.fullmatch(strike.subject)
        assert found
        stopped.append(scene.instances[found[1]])
        scene.system.stack.freeze(stopped[0])
        return True

    strike = scene.strike("planner", is_direct_call, stops_the_called)
    await scene.begin(tool)
    await strike.struck()
    following = asyncio.create_task(scene.end())
    await asyncio.sleep(stopped_s)
    scene.system.stack.thaw(stopped[0])
    await following
    for name in set(scene.system.stack.names("tool_runner")) - set(stopped):
        scene.system.stack.kill(name)
    await follow(scene.client, Plan(turns=((tool,),), nth=new_id()))
    await scene.check("succeeded", 1)


async def test_a_run_is_in_the_index_after_a_second(scene: Scene) -> None:
    """Its request is still in work; its deadline timer is set, too."""
    await scene.begin("often", delay_ms=3000)
    where = (subjects.DEFAULT_TENANT, scene.run.run_id)

    async def is_open() -> bool:
        listed = scene.run.run_id in {run["run_id"] for run in (await scene.client.get("/v1/runs"))["runs"]}
        timer = await scene.bus.last_from_leader(subjects.TIMERS, subjects.timer(*where, "deadline"))
        return listed and timer is not None

    await wait_until(is_open, timeout=10, what="the run is in the index")
    assert await scene.bus.last_from_leader(subjects.REQUESTS, subjects.request(*where))
    await scene.end()
    await scene.check("succeeded", 1)
