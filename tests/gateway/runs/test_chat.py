"""One question, one answer: `POST /chat`."""

import asyncio
import hashlib

import httpx
import pytest

from contracts.runs.events import Asked, Done, Observed, Paused, PlannedCall, Step
from contracts.wire import keys, subjects
from contracts.wire.names import new_id
from services.gateway.auth.caller import KEYLESS
from services.gateway.runs import index
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.runs.waiting import status_of
from tests.gateway.runs.test_routes import inbox, status
from tests.support.gateways import Served, Writer, paused, requested, serving
from tests.support.nats_server import NatsServer
from tests.support.session_writer import SessionWriter
from tests.support.waiting import wait_until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers do not wait for an entry in the index, which nobody writes."""
    monkeypatch.setattr(index, "_MAX_LAG_S", 0.05)


async def requested_run(bus: Bus, query: str) -> str:
    async def look() -> str | None:
        answer = await bus.api("STREAM.INFO.REQUESTS", {"subjects_filter": subjects.request.all})
        for subject in answer["state"].get("subjects", {}):
            message = await bus.last(subjects.REQUESTS, subject)
            if message is not None and query.encode() in message.data:
                return subjects.parse(subject).run
        return None

    return str(await wait_until(look, what=f"{query!r} waits"))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("done", ("done", "answer_complete", None)),
        ("failed", ("error", "error", "model_failed")),
        ("cancelled", ("cancelled", "cancelled", None)),
    ],
)
async def test_chat_answers_when_the_run_has_ended_however(
    served: Served, bus: Bus, end: str, said: tuple[str, str, str | None]
) -> None:
    """200 with the payload and how it ended; unknown fields are ignored."""
    query = f"chat {new_id()}"
    waiting = asyncio.create_task(
        served.http.post("/chat", json={"query": query, "session_id": "s", "history": [1], "stream": False})
    )
    run = await requested_run(bus, query)
    writer = Writer(bus, run=run)
    await writer.open()
    await writer.chunk("be")
    await getattr(writer, end)()
    answer = await waiting
    assert answer.status_code == 200
    assert answer.json()["run_id"] == run
    assert tuple(answer.json()[name] for name in ("status", "reason", "code")) == said
    assert answer.json()["payload"]["raw_answer"] == ("because" if end == "done" else "")
    assert len(served.parts.streams) == 0


@pytest.mark.parametrize("waits", [False, True])
async def test_a_list_after_an_answer_shows_what_it_said(served: Served, bus: Bus, *, waits: bool) -> None:
    """`/chat` answers after the entry, which is written a moment after the end; others let the next list wait."""
    query, session = f"listed {new_id()}", new_id()
    answering = asyncio.create_task(served.http.post("/chat", json={"query": query, "session_id": session}))
    run = await requested_run(bus, query)
    request = await requested(bus, run)
    end = Done(raw_answer="because", reason="answer_complete")
    before, after = (status_of(run, request, at, state="running", started_at=1, ended_at=None) for at in (None, end))
    entries, key = Bucket(bus, keys.RUNS_BUCKET), keys.run_key(request.tenant, request.requested_at, run)
    await entries.put(key, before)
    writer = Writer(bus, run=run)
    await writer.open()
    await writer.done()
    asked = answering
    if waits:
        served.parts.index.answered(KEYLESS, run)
        asked = asyncio.create_task(served.http.get("/v1/runs", params={"session_id": session}))
    assert not (await asyncio.wait({asked}, timeout=0.2))[0]
    await entries.put(key, after)
    assert (await answering).json()["status"] == "done"
    listed = await asked if waits else await served.http.get("/v1/runs", params={"session_id": session})
    assert [(each["run_id"], each["status"]) for each in listed.json()["runs"]] == [(run, "done")]


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_list_of_sessions_after_an_answer_shows_its_session(served: Served, bus: Bus, *, is_new: bool) -> None:
    """Whose entry is written a moment after that of the run; two programs may list at once."""
    query, session = f"listed {new_id()}", SessionWriter(bus, new_id())
    answering = asyncio.create_task(served.http.post("/chat", json={"query": query, "session_id": session.session_id}))
    run = await requested_run(bus, query)
    await session.start()
    await session.begin(run)
    if not is_new:
        await session.enter()
    writer = Writer(bus, run=run)
    await writer.open()
    await writer.done()
    assert (await answering).json()["status"] == "done"
    listing = [asyncio.create_task(served.http.get("/v1/sessions")) for _ in range(2)]
    assert not (await asyncio.wait(listing, timeout=0.2))[0]
    await session.end(run)
    await session.enter()
    for answer in await asyncio.gather(*listing):
        listed = {each["session_id"]: each for each in answer.json()["sessions"]}
        assert listed[session.session_id]["current_run"] is None


@pytest.mark.usefixtures("impatient")
async def test_chat_accepts_the_fields_of_a_run(served: Served, bus: Bus) -> None:
    """Limits bind here too, and a wrong one is named."""
    query = f"bounded {new_id()}"
    waiting = asyncio.create_task(
        served.http.post("/chat", json={"query": query, "limits": {"max_steps": 3}, "tools": ["a"]})
    )
    run = await requested_run(bus, query)
    request = await requested(bus, run)
    assert (request.limits, request.tools) == ({"max_steps": 3}, ["a"])
    await Writer(bus, run=run).cancelled()
    assert (await waiting).status_code == 200
    wrong = await served.http.post("/chat", json={"query": query, "limits": {"max_step": 3}})
    assert wrong.status_code == 422
    assert "max_step" in wrong.text


@pytest.mark.usefixtures("impatient")
async def test_chat_for_a_question_that_was_answered_before(served: Served, bus: Bus) -> None:
    """The same key gives the same run, here too."""
    run = hashlib.sha256(b"default\nanswered").hexdigest()[:32]
    writer = Writer(bus, run=run)
    await writer.cancelled()
    answer = await served.http.post("/chat", json={"query": "x"}, headers={"Idempotency-Key": "answered"})
    assert (answer.status_code, answer.json()["run_id"]) == (200, run)


async def test_a_client_that_disconnects_from_chat_does_not_cancel_the_run(served: Served, bus: Bus) -> None:
    """And leaves nothing behind in the gateway."""
    query = f"hang up {new_id()}"
    waiting = asyncio.create_task(served.http.post("/chat", json={"query": query}))
    run = await requested_run(bus, query)
    await wait_until(lambda: len(served.parts.streams) == 1, what="the gateway waits for the run")
    waiting.cancel()
    await wait_until(lambda: len(served.parts.streams) == 0, what="the gateway has noticed")
    assert await inbox(bus, run) is None
    assert (await status(served, run))["status"] == "queued"


async def asked(served: Served, bus: Bus) -> tuple["asyncio.Task[httpx.Response]", Writer]:
    """A chat that waits for its answer, and the writer of its run, which has begun."""
    query = f"ask {new_id()}"
    waiting = asyncio.create_task(served.http.post("/chat", json={"query": query}))
    writer = Writer(bus, run=await requested_run(bus, query))
    await writer.open()
    return waiting, writer


@pytest.mark.usefixtures("impatient")
async def test_chat_answers_with_the_pauses_when_its_run_waits_for_a_person(served: Served, bus: Bus) -> None:
    """202, once nothing else goes on: a parallel call that still works is waited for."""
    waiting, writer = await asked(served, bus)
    calls = [PlannedCall(call_id="1-1", tool="pay", args={"sum": 9}), PlannedCall(call_id="1-2", tool="look")]
    await writer.log(Step(step=1, node="plan", status="started", calls=calls), paused("1-1", tool="pay"))
    await writer.log(Asked(turn=1, attempt=1, by="INBOX:1", holder="h"))
    await wait_until(lambda: len(served.parts.streams) == 1, what="the gateway waits on")
    assert not waiting.done()
    await writer.log(Step(step=1, node="plan", status="started", calls=calls))
    await writer.log(Observed(call_id="1-2", tool="look", status="succeeded"))
    answer = await waiting
    assert (answer.status_code, answer.json()["status"]) == (202, "waiting")
    assert (answer.json()["run_id"], answer.json()["session_id"]) == (writer.run, f"run-{writer.run}")
    (pause,) = answer.json()["pauses"]
    assert (pause["call_id"], pause["tool"], len(pause["plan"])) == ("1-1", "pay", 2)


@pytest.mark.usefixtures("impatient")
async def test_chat_answers_with_the_budget_that_its_run_waits_for(served: Served, bus: Bus) -> None:
    """It has no pause to decide about; a top-up continues the run."""
    waiting, writer = await asked(served, bus)
    await writer.log(Paused(budget="max_steps of 2", until=2_000_000_000_000))
    answer = await waiting
    assert (answer.status_code, answer.json()["paused"], answer.json()["pauses"]) == (202, "max_steps of 2", [])


async def test_chat_gets_503_when_the_gateway_stops(shared_nats: NatsServer, bus: Bus) -> None:
    """503 with the run's id: it goes on."""
    query = f"stop {new_id()}"
    async with serving(shared_nats.url) as served, httpx.AsyncClient() as http:
        waiting = asyncio.create_task(http.post(f"{served.url}/chat", json={"query": query}))
        run = await requested_run(bus, query)
        await wait_until(lambda: len(served.parts.streams) == 1, what="the gateway waits for the run")
        served.server.should_exit = True
        answer = await waiting
    assert (answer.status_code, answer.json()["run_id"]) == (503, run)
