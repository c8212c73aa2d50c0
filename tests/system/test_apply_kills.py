"""A proposal is applied while one process after another is killed: at each message that it sends, and between two rows.

No row is there twice, the proposal ends as applied, once, and the next turn knows the real counts.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.client import Client, Frame
from tests.system.evidence import drained, session_records
from tests.system.model import COLUMN, Plan
from tests.system.strikes import Strike, dies, dies_after, for_one_test, mended
from tests.system.system import System, planned

_MAX_MESSAGES = 60
_MANY, _AT_ROW = 200, 17
SENT = {
    "gateway": ("session_inbox.",),
    "planner": ("emit.", "session_inbox.", "request.", "direct.", "call.", "timer.", "inbox.", "$KV.runs.", "$JS.ACK."),
    "tool_runner": ("emit.", "tool.apply_proposal", "inbox.", "_INBOX.planner.", "$JS.ACK."),
    "tables": ("answer.",),
}
"""Process -> the beginnings of the subjects that count."""


@pytest.fixture(scope="module")
def tables_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two of everything, one tables service, and a tap on each."""
    with planned(tmp_path_factory.mktemp("applies"), tapped=True, tables=True) as system:
        yield system


@pytest.fixture
def system(tables_system: System) -> Iterator[System]:
    with for_one_test(tables_system) as found:
        yield found


@dataclass
class Scene:
    """A system with one table, and who applies proposals for it."""

    system: System
    client: Client
    bus: Bus
    table_id: str

    async def turn(self, session_id: str, adds: int = 0) -> list[Frame]:
        """A turn on the table; it may propose rows."""
        plan = Plan(strategy="chat", adds=adds, nth=session_id)
        page = {"name": "table_view", "table_id": self.table_id}
        run = await self.client.ask(plan.query, key=new_id(), strategy="chat", session_id=session_id, page=page)
        seen: list[Frame] = []
        assert (await self.client.follow(run, seen))["type"] == "done"
        return seen

    async def proposed(self, adds: int) -> tuple[str, str]:
        """A session, and the proposal of its first turn."""
        session_id = new_id()
        [proposed] = [event for _, event in await self.turn(session_id, adds) if event["type"] == "payload"]
        return session_id, proposed["payload_id"]

    async def apply(self, proposal_id: str, chosen: list[int]) -> dict[str, Any]:
        """Apply it until that is over, whoever dies, and however often it is given back."""
        while True:
            answer = await self.client.surely("POST", f"/v1/proposals/{proposal_id}/apply", json={"operations": chosen})
            if answer.status_code == 200:
                found: dict[str, Any] = answer.json()
                return found
            assert answer.status_code in {202, 502, 504}, answer.text

    async def judge(self, session_id: str, proposal_id: str, adds: int, chosen: list[int]) -> None:
        """Nothing is done twice, the state has ended, and everybody knows the counts."""
        shown = await self.client.get(f"/v1/proposals/{proposal_id}")
        report, verdicts = shown["report"], shown["verdicts"]
        assert (shown["state"], report["applied"], report["failed"]) == ("applied", len(chosen), 0), shown
        assert [(each["index"], each["status"]) for each in verdicts] == [(each, "applied") for each in chosen]
        assert await self.names(session_id) == sorted(f"{session_id}-{number}" for number in chosen)
        events = [event["type"] for each in await session_records(self.bus, session_id) for event in each.events]
        assert events.count("proposal_applied") == 1
        started = (await self.turn(session_id))[0][1]
        [note] = started["page_view"]["notes"]
        assert f"chose {len(chosen)} of {adds} operations; {len(chosen)} were applied, 0 failed" in note

    async def struck(self, kind: str, nth: int, act: Callable[[Strike], bool]) -> bool:
        """Apply two of three rows while a process dies at its message with this number; return whether it did."""
        session_id, proposal_id = await self.proposed(3)
        await drained(self.bus)
        await mended(self.system)
        counted = itertools.count()

        def hits(subject: str, _body: bytes) -> bool:
            return subject.startswith(SENT[kind]) and next(counted) == nth

        strike = Strike(self.system, kind, hits, act)
        await strike.during(self.apply(proposal_id, [0, 2]))
        await self.judge(session_id, proposal_id, 3, [0, 2])
        return strike.done.is_set()

    async def names(self, session_id: str) -> list[str]:
        """The names of the rows that a session has added."""
        rows = await asyncio.to_thread(self.system.tables().rows, self.table_id)
        return sorted(name for row in rows if (name := row[COLUMN]).startswith(session_id))


@pytest.fixture
async def scene(system: System, client: Client, bus: Bus) -> Scene:
    """All of it, with a table of its own."""
    await mended(system)
    columns: dict[str, Any] = {COLUMN: "text"}
    table_id = await asyncio.to_thread(system.tables().table, new_id(), **columns)
    return Scene(system, client, bus, table_id)


@pytest.mark.chaos
async def test_the_tables_die_between_two_rows(scene: Scene) -> None:
    """What was done is not done again, and the rest follows."""
    session_id, proposal_id = await scene.proposed(_MANY)
    applying = asyncio.create_task(scene.apply(proposal_id, [*range(_MANY)]))

    async def is_there() -> bool:
        return len(await scene.names(session_id)) >= _AT_ROW

    await wait_until(is_there, timeout=30, what="some rows are there")
    scene.system.stack.kill("tables-1")
    scene.system.stack.spawn("tables-1")
    await applying
    await scene.judge(session_id, proposal_id, _MANY, [*range(_MANY)])


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("act", [dies, dies_after], ids=["before", "after"])
@pytest.mark.parametrize("kind", SENT)
async def test_a_process_dies_at_each_message(kind: str, act: Callable[[Strike], bool], scene: Scene) -> None:
    """Whichever message it is."""
    for nth in range(_MAX_MESSAGES):
        if not await scene.struck(kind, nth, act):
            assert nth > 0, "some message is sent"
            return
    raise AssertionError(f"more than {_MAX_MESSAGES} messages were sent")
