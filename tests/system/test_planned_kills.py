"""A planned run while a planner or tool runner is killed at each message that it sends for the run.

The run has the right answer, and no request to the model is made but for an attempt that died: a plan that is stored
is not asked for again, and goes on with the next call.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.samples import first_seed
from tests.system.client import Client
from tests.system.model import Plan, Stage
from tests.system.plan_rules import plans_of
from tests.system.sound import judged_sound
from tests.system.strikes import Strike, dies, dies_after, for_one_test, mended
from tests.system.system import System, planned
from tests.system.traces import RunEvidence, planned_calls

SCENARIOS = {
    "direct response": Plan(strategy="planned"),
    "tools": Plan(strategy="planned", turns=(("often",), ("once",), ("often",))),
    "a tool fails": Plan(strategy="planned", turns=(("often",), ("refuse",), ("once",))),
    "invalid": Plan(strategy="planned", turns=(("often",), ("once",)), wrong="$0.output.absent"),
}
STATUSES = {"tools": ["success"] * 3, "a tool fails": ["success", "failed", "not_executed"]}
_NODES: dict[Stage, bytes] = {"plan": b'"node":"plan"', "respond": b'"node":"respond"'}
_LOG = ("emit.",)
_HEARTBEAT = b"+WPI"
_MAX_MESSAGES = 60
_ALL = {
    "planner": ("emit.", "direct.", "call.", "timer.", "inbox.", "$KV.runs.", "$JS.ACK."),
    "tool_runner": ("emit.", "tool.", "inbox.", "timer.", "_INBOX.planner.", "$JS.ACK."),
}
_QUEUED = {"RUNWIRE_PLANNER_REQUEST_SLOTS": "1"}
"""Half of a planner's slots may wait for direct calls, which is none of one."""
moments = pytest.mark.parametrize("moment", ["before", "after"])
scenarios = pytest.mark.parametrize("scenario", SCENARIOS)


@pytest.fixture(scope="module", params=["direct", pytest.param("queued", marks=pytest.mark.chaos)])
def tapped_system(
    shared_system: System, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[System]:
    """Two of everything, and a tap on each planner and tool runner. Calls are made directly, or through CALLS."""
    if request.param == "direct":
        yield shared_system
        return
    with planned(tmp_path_factory.mktemp("kills"), tapped=True, env=_QUEUED) as system:
        yield system


@pytest.fixture
def system(tapped_system: System) -> Iterator[System]:
    with for_one_test(tapped_system, new_planners=True) as found:
        yield found


@dataclass
class Watch:
    """Chooses one message of a run, and notes what its planners have sent and asked until then."""

    system: System
    plan: Plan
    nth: int
    """The number of the message, from 0."""
    moment: str
    """Whether the process dies before or after it sends this message."""
    prefixes: tuple[str, ...]
    """Of the subjects that count."""
    subject: str = ""
    """Of the message."""
    last: bytes = b""
    count: int = 0
    sent: list[bytes] = field(default_factory=list)
    asked: Counter[Stage] = field(default_factory=Counter)
    """Requests to the model before the strike."""

    def hits(self, subject: str, body: bytes) -> bool:
        """Whether it is the one."""
        is_counted = subject.startswith(self.prefixes) and not body.startswith(_HEARTBEAT)
        if self.prefixes == _LOG:
            is_counted = is_counted and subject.endswith(".log")
        self.count += is_counted
        if is_counted and self.count > self.nth:
            self.subject, self.last = subject, body
            self.asked = Counter({stage: len(self.system.model.asked(self.plan, stage)) for stage in _NODES})
            self.sent += [body] if self.moment == "after" else []
            return True
        self.sent.append(body)
        return False

    def expected(self, kind: str) -> Counter[Stage]:
        """How many requests to the model there are in the end: one more for each that died before its record."""
        stages: list[Stage] = ["plan", "respond"] if self.plan.turns else ["plan"]
        lost = {
            stage: kind == "planner" and self.asked[stage] > 0 and not any(_NODES[stage] in body for body in self.sent)
            for stage in stages
        }
        return Counter({stage: 1 + lost[stage] for stage in stages})

    def unmade(self) -> int:
        """How many announced requests to the model were not made: that of a planner that died in between."""
        return self.moment == "after" and b'"type":"asked"' in self.last


@dataclass
class Scene:
    """A system, who asks it, and who looks at what is stored."""

    system: System
    client: Client
    bus: Bus
    is_direct: bool
    """Whether planners make direct calls."""

    async def struck(self, kind: str, watch: Watch) -> tuple[RunEvidence, bool]:
        """Have a run, and return whether a process of this kind died in it; else there was no such message."""
        await mended(self.system)
        strike = Strike(self.system, kind, watch.hits, dies if watch.moment == "before" else dies_after)
        run = RunEvidence(
            await self.client.ask(watch.plan.query, key=watch.plan.nth, strategy="planned"), script=watch.plan
        )
        assert (await strike.during(self.client.follow(run.run_id, run.seen)))["type"] == "done"
        await judged_sound(self.bus, self.system, run)
        return run, strike.done.is_set()

    async def struck_everywhere(
        self, kind: str, scenario: str, moment: str, prefixes: tuple[str, ...], nths: range = range(_MAX_MESSAGES)
    ) -> AsyncIterator[tuple[Watch, RunEvidence]]:
        """Have one run for each message with these numbers, and yield what was sent and what is stored."""
        for nth in nths:
            watch = Watch(self.system, replace(SCENARIOS[scenario], nth=new_id()), nth, moment, prefixes)
            run, died = await self.struck(kind, watch)
            if not died:
                assert nth > max(1, nths.start), "some messages are sent"
                assert all(bool(call["direct"]) == self.is_direct for _, call in planned_calls(run))
                return
            yield watch, run
        raise AssertionError(f"more than {_MAX_MESSAGES} messages were sent")


@pytest.fixture
def scene(system: System, client: Client, bus: Bus) -> Scene:
    return Scene(system, client, bus, not system.stack.env.items() >= _QUEUED.items())


def statuses_of(run: RunEvidence) -> list[str]:
    """How the calls have ended."""
    return [status for plan in plans_of(run) for ended in plan.ends for status in ended["statuses"]]


def check_requests(kind: str, watch: Watch, run: RunEvidence) -> None:
    """Each request to the model was announced, and only what died in between is asked for again."""
    assert Counter(run.requests) == watch.expected(kind), watch
    asked = [event for event in run.of("asked") if event["cause"] != "restated"]
    unmade = watch.unmade() if kind == "planner" else 0
    assert len(asked) - sum(run.requests.values()) == unmade, watch
    assert {event["turn"] for event in asked} == ({1, 2} if watch.plan.turns else {1}), watch


async def check_planner_kills(scene: Scene, scenario: str, moment: str, *which: Any) -> None:
    """Whichever message it is, every call ends as if nobody had died."""
    async for watch, run in scene.struck_everywhere("planner", scenario, moment, *which):
        check_requests("planner", watch, run)
        assert statuses_of(run) == STATUSES.get(scenario, []), watch


@pytest.mark.sample(1)
@moments
@pytest.mark.parametrize("scenario", ["tools", "a tool fails", "invalid"])
async def test_a_planner_dies_at_each_third_record(scenario: str, moment: str, scene: Scene) -> None:
    """The next one goes on with what is stored. The others are struck on later days, all by `make chaos`."""
    first = first_seed() // 6_000 % 3  # Each day has another one of the six cases.
    await check_planner_kills(scene, scenario, moment, _LOG, range(first, _MAX_MESSAGES, 3))


@pytest.mark.chaos
@pytest.mark.timeout(900)
@moments
@scenarios
async def test_a_planner_dies_at_each_message(scenario: str, moment: str, scene: Scene) -> None:
    """Records, calls, timers, entries of the index, acknowledgements."""
    await check_planner_kills(scene, scenario, moment, _ALL["planner"])


@pytest.mark.chaos
@pytest.mark.timeout(900)
@moments
@pytest.mark.parametrize("scenario", STATUSES)
async def test_a_tool_runner_dies_at_each_message(scenario: str, moment: str, scene: Scene) -> None:
    """No planner notices. The outcome of a call that may not be repeated may be unknown, which halts the plan."""
    async for watch, run in scene.struck_everywhere("tool_runner", scenario, moment, _ALL["tool_runner"]):
        check_requests("tool_runner", watch, run)
        if statuses_of(run) != STATUSES[scenario]:
            failures = [event["failure"]["code"] for event in run.log if event.get("failure")]
            assert failures == ["outcome_unknown"], watch
            assert "failed" in statuses_of(run), watch
        for name in scene.system.stack.names("planner"):  # They remember slow tools for a while.
            scene.system.stack.kill(name)
