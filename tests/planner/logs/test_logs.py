"""The logs of runs: what two handlings or two runs of one id read and write; and the lines about runs for people."""

import time
from typing import Any

import pytest
import structlog.testing

from contracts.runs.events import PayloadProposed, Redelivered
from contracts.runs.requests import Memory, RunRequested
from contracts.sessions.proposals import PayloadKept, ProposalApplying, ProposalPending
from contracts.sessions.records import (
    CHECKPOINT_EVERY,
    ContextSet,
    KnownSessionEvent,
    RunBegun,
    RunEnded,
    RunQueued,
    SessionStarted,
)
from contracts.wire import subjects
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.planner.conversation.encoding import encoded
from services.planner.conversation.rendering import Renderer
from services.planner.effects.messages import request_run
from services.planner.logs import index
from services.planner.logs.ownership_watch import Address
from services.planner.logs.run_log import RunLogs
from services.planner.logs.session_log import SessionAddress, SessionLogs
from services.planner.run.state.run import Run
from services.shared.sessions.state import Session
from tests.planner.conftest import Plan
from tests.planner.run_world import started
from tests.planner.test_runs_pauses import paying
from tests.support.model_server import ModelServer, action, answer
from tests.support.run_services import MODEL, Planning
from tests.support.session_logs import STRATEGIES, appended, sessions_of
from tests.support.waiting import wait_until

SECRET = "the launch code is 4711"


def runs_of(count: int) -> list[KnownSessionEvent]:
    """The events of runs that have begun and ended at once."""
    found: list[KnownSessionEvent] = []
    for _ in range(count):
        run = new_id()
        ended = RunEnded(run=run, outcome="done", question=f"q {run}", answer=f"a {run}", requested_at=1)
        found += [RunQueued(run=run, requested_at=1), RunBegun(run=run), ended]
    return found


async def rendered(bus: Bus, sessions: SessionLogs, where: Address) -> bytes:
    """The messages of a run, as a planner sends them that does not know the run yet."""
    run = await RunLogs(bus, sessions, STRATEGIES.of, cached_runs=1).load(where, fresh=False)
    pieces = Renderer().request(run, {"role": "system", "content": ""}, []).pieces
    return b"".join(encoded(piece) for piece in pieces)


async def with_proposal(sessions: SessionLogs, address: SessionAddress, made: str, job: str) -> Session:
    """A session with a proposal of the run `made`, which `job` applies."""
    payload_id = new_id()
    kept = PayloadKept(payload_id=payload_id, kind="data_proposal", summary="")
    ended = RunEnded(run=made, outcome="done", question="q", answer="a", requested_at=1, payloads=[kept])
    pending = ProposalPending(proposal_id=payload_id, run=made, kind=kept.kind, summary="")
    applying = ProposalApplying(proposal_id=payload_id, operations=[0], of=1, job=job)
    begun = SessionStarted(session_id=address.key), RunQueued(run=made, requested_at=1), RunBegun(run=made)
    [session] = await appended(sessions, address, [*begun, ended, pending, applying])
    return session


async def test_a_payload_is_read_from_the_run_that_made_it(bus: Bus) -> None:
    """As the session says, which keeps it longer than the turn."""
    made, session_id = new_id(), new_id()
    sessions = SessionLogs(bus)
    session = await with_proposal(sessions, SessionAddress.of("default", session_id), made, new_id())
    [payload_id] = session.proposals
    proposed = PayloadProposed(payload_id=payload_id, kind="data_proposal", summary="", data={})
    logs, where = RunLogs(bus, sessions, STRATEGIES.of), Address("default", made)
    await logs.append(where, await logs.load(where, fresh=True), 1, [started(), proposed])
    opening = started()
    request = opening.request.model_copy(update={"session_id": session_id})
    opening = opening.model_copy(update={"conversation_seq": session.seq, "request": request})
    assert await logs.payload("default", Run(started=opening), payload_id) == proposed


@pytest.mark.parametrize(("is_requested", "is_end"), [(True, False), (False, False), (True, True)])
async def test_a_dead_letter_gives_a_proposal_back(bus: Bus, *, is_requested: bool, is_end: bool) -> None:
    """The decision, unless the apply was requested and may still be made; or the word of the end of its run."""
    address, job = SessionAddress.of("default", new_id()), new_id()
    [payload_id] = (await with_proposal(SessionLogs(bus), address, new_id(), job)).proposals
    if is_requested:
        request = RunRequested(run_id=job, tenant="default", requested_at=1, trace_id="t", query="")
        await request_run(bus, request)
    await sessions_of(bus).on_dead_letter(address, f"{job}-ended" if is_end else f"proposal-{payload_id}")
    found = (await SessionLogs(bus).load(address)).proposals[payload_id]
    goes_on = is_requested and not is_end
    assert (found.state, found.code) == (("applying", None) if goes_on else ("pending", "poisoned"))


async def test_a_record_follows_what_it_was_decided_from(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process writes, and this one reads that, between the decision and its record: it is decided again."""
    where, place = Address("default", new_id()), index.place_proposals
    logs, others = (RunLogs(bus, SessionLogs(bus), STRATEGIES.of, cached_runs=1) for _ in range(2))
    await logs.append(where, await logs.load(where, fresh=True), 1, [started()])
    run = await logs.load(where, fresh=True)

    async def meanwhile(*_: Any) -> None:
        monkeypatch.setattr(index, "place_proposals", place)
        theirs = await others.load(where, fresh=True)
        assert await others.append(where, theirs, 2, [Redelivered(by="a", holder="b")])
        assert (await logs.load(where, fresh=True)).seq == run.seq

    monkeypatch.setattr(index, "place_proposals", meanwhile)
    assert await logs.append(where, run, 3, [Redelivered(by="c", holder="d")]) == []


async def test_a_run_knows_the_conversation_up_to_the_record_that_it_names(bus: Bus) -> None:
    """However the session goes on, and in any planner: its model is shown the same bytes."""
    where, session_id = Address("default", new_id()), new_id()
    address = SessionAddress.of("default", session_id)
    sessions = SessionLogs(bus)
    begun, last = [SessionStarted(session_id=session_id)], [ContextSet(values={"city": "Turin"})]
    (*_, session) = await appended(sessions, address, begun, runs_of(90), last)
    opening = started()
    request = opening.request.model_copy(update={"session_id": session_id})
    changes = {"conversation_seq": session.seq, "memory": Memory(recent_turns=30), "request": request}
    logs = RunLogs(bus, sessions, STRATEGIES.of, cached_runs=1)
    await logs.append(where, await logs.load(where, fresh=True), 1, [opening.model_copy(update=changes)])
    first = await rendered(bus, sessions, where)
    newest = session.turns[-1].question.encode()
    assert [newest in first, b"60 older turns are not shown" in first, b"Turin" in first] == [True] * 3

    later = ([*runs_of(2), ContextSet(values={"city": f"city {number}"})] for number in range(CHECKPOINT_EVERY + 20))
    await appended(sessions, address, *later)
    assert await rendered(bus, sessions, where) == first
    assert await rendered(bus, SessionLogs(bus), where) == first
    await sessions.load(address)
    assert await rendered(bus, sessions, where) == first


async def request(planning: Planning, run: str) -> None:
    body = RunRequested(
        run_id=run, tenant="default", requested_at=time.time_ns() // 1_000_000, trace_id="t" * 32, query="What?"
    )
    await planning.bus.publish(subjects.request("default", run), body)


async def test_a_new_run_with_the_id_of_a_purged_one_is_answered(plan: Plan, provider: ModelServer) -> None:
    """An idempotency key gives the same id again after the retention; the planner may still hold the old run."""
    planning, run = await plan(), "1" * 32
    provider.say(answer("old"), answer("new"))
    await request(planning, run)
    assert (await planning.ended(run)).end.raw_answer == "old"
    for subject in subjects.of_run("default", run):
        await planning.bus.api(f"STREAM.PURGE.{subjects.RUNS}", {"filter": subject})

    async def is_acknowledged() -> bool:
        return await planning.bus.last(subjects.REQUESTS, subjects.request("default", run)) is None

    await wait_until(is_acknowledged, what="the first request is acknowledged")
    await request(planning, run)
    story = await planning.ended(run)
    assert (story.end.raw_answer, story.end.usage.model_calls) == ("new", 1)


def of(lines: list[Any], event: str) -> list[dict[str, Any]]:
    """The lines of an event, all at INFO."""
    found = [line for line in lines if line["event"] == event]
    assert all(line["log_level"] == "info" for line in found)
    return found


async def test_a_run_that_ended_leaves_one_line(plan: Plan, provider: ModelServer) -> None:
    """With what it cost, and how it ended; nothing of what was said."""
    provider.say(action("look", q=SECRET), action("fail", q=SECRET), answer(SECRET))
    with structlog.testing.capture_logs() as lines:
        story = await (await plan()).tell(SECRET, llm_context={"note": SECRET})
        # A listener may see the end before the planner knows that it is stored.
        await wait_until(lambda: any(line["event"] == "run_ended" for line in lines), what="the end is in the log")
    assert SECRET not in str(lines)
    [line] = of(lines, "run_ended")
    usage = story.end.usage
    assert line["run_id"] == story.run
    assert (line["tenant"], line["agent"], line["model"]) == ("default", "default", MODEL)
    assert (line["status"], line["code"], line["steps"]) == ("done", "answer_complete", 3)
    assert (line["prompt_tokens"], line["completion_tokens"]) == (usage.prompt_tokens, usage.completion_tokens)
    assert (line["model_calls"], line["tool_calls"], line["cost_usd"]) == (3, 2, None)
    assert line["ms"] > 0
    [call] = of(lines, "call_failed")
    assert call["code"] == "tool_error"


async def test_a_call_that_a_person_rejects_leaves_a_line(plan: Plan, provider: ModelServer) -> None:
    """No tool runner gets the call, so the planner logs it, without the note."""
    planning = await plan(paying([]))
    provider.say(action("pay", sum=5), answer("done"))
    with structlog.testing.capture_logs() as lines:
        run = await planning.ask()
        [pause] = await planning.paused(run)
        await planning.decide(pause, run, "reject", note=SECRET)
        await planning.ended(run)
    assert SECRET not in str(lines)
    [refused] = of(lines, "call_failed")
    assert (refused["tool"], refused["code"], refused["run_id"]) == ("pay", "rejected", run)
