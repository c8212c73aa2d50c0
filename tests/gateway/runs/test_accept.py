"""Asking for a run: what is stored, and what the same question asked twice gives."""

import asyncio
import contextlib
import functools
import hashlib
import itertools
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from nats.aio.msg import Msg

from contracts.runs.events import Done
from contracts.runs.requests import RunInput
from contracts.wire import subjects
from contracts.wire.names import new_id
from runwire.client import Client
from services.gateway.auth.caller import KEYLESS
from services.gateway.edge.routing import RequestIds
from services.gateway.runs.accept import run_request
from services.messaging.connection import Bus
from services.messaging.reads import DirectReader
from tests.support.gateways import Served, Writer, assert_unavailable, requested
from tests.support.waiting import wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


async def ask(served: Served, body: dict[str, Any], key: str | None = None) -> httpx.Response:
    return await served.http.post("/v1/runs", json=body, headers={"Idempotency-Key": key} if key else {})


async def test_an_accepted_run_is_stored_with_its_whole_request(served: Served, bus: Bus) -> None:
    """202 says where the run is; the request is durable by then."""
    body = {
        "query": "why is the sky blue?",
        "agent": "physics",
        "session_id": "s1",
        "llm_context": {"page": "sky", "deep": [{"n": 2**70}]},
        "tool_context": {"token": "t"},
        "tools": ["search"],
        "limits": {"max_steps": 3, "deadline_s": None, "max_parallel": None},
    }
    answer = await ask(served, body)
    assert answer.status_code == 202
    accepted = answer.json()
    run = accepted["run_id"]
    assert accepted == {
        "run_id": run,
        "session_id": "s1",
        "status": "queued",
        "url": f"/v1/runs/{run}",
        "events_url": f"/v1/runs/{run}/events",
        "ticket_url": f"/v1/runs/{run}/ticket",
    }
    assert answer.headers["location"] == f"/v1/runs/{run}"
    request = await requested(bus, run)
    assert (request.query, request.agent, request.session_id) == ("why is the sky blue?", "physics", "s1")
    assert request.llm_context == body["llm_context"]
    assert request.tool_context == {"token": "t"}
    assert request.limits == {"max_steps": 3, "deadline_s": None}, "null lifts a limit, where there may be none"


IDS: list[tuple[list[tuple[str, str]], str | None, str | None]] = [
    ([("X-Request-Id", "req-789"), ("X-Trace-Id", "trace-012")], "req-789", "trace-012"),
    ([("x-request-id", "~" * 200), ("traceparent", TRACEPARENT), ("X-Trace-Id", "t")], "~" * 200, TRACE),
    ([("traceparent", "nonsense"), ("X-Trace-Id", "!")], None, "!"),
    ([("X-Request-Id", ""), ("X-Trace-Id", "x" * 201)], None, None),
    ([("traceparent", f"00-{'0' * 32}-00f067aa0ba902b7-01")], None, None),
    ([("X-Request-Id", "two words"), ("X-Trace-Id", "é")], None, None),
    ([("X-Request-Id", "one"), ("X-Request-Id", "two")], None, None),
]


async def test_the_ids_of_the_caller(served: Served, bus: Bus) -> None:
    """Of the request and of its trace, in whatever form; one that cannot be used is ignored."""
    for path, (headers, request_id, trace) in itertools.product(("/v1/runs", "/chat"), IDS):
        key = new_id()
        sent = [(name.encode(), value.encode()) for name, value in [*headers, ("Idempotency-Key", key)]]
        run = KEYLESS.run_id_for_key(key)
        asking = asyncio.create_task(served.http.post(path, json={"query": "x"}, headers=sent))
        is_stored = functools.partial(bus.last, subjects.REQUESTS, subjects.request("default", run))
        await wait_until(is_stored, what="it is stored")
        asking.cancel()
        found = await requested(bus, run)
        assert found.request_id == request_id
        assert found.trace_id == trace or (trace is None and re.fullmatch("(?!0{32})[0-9a-f]{32}", found.trace_id))


async def test_ids_are_no_part_of_the_body(served: Served, bus: Bus) -> None:
    """A request that is repeated with its key has a new id of its own mostly; the first one stays."""
    for request_id in ("first", "second"):
        headers = {"Idempotency-Key": "same", "X-Request-Id": request_id}
        answer = await served.http.post("/v1/runs", json={"query": "x"}, headers=headers)
        assert (await requested(bus, answer.json()["run_id"])).request_id == "first"


async def test_the_client_sends_ids(served: Served, bus: Bus) -> None:
    """Those that the gateway would ignore are an error."""
    async with Client(str(served.http.base_url)) as client:
        run = await client.start("x", request_id="req-789", trace_id="trace-012")
        found = await requested(bus, run)
        assert (found.request_id, found.trace_id) == ("req-789", "trace-012")
        refused: tuple[dict[str, Any], ...] = ({"request_id": "two words"}, {"trace_id": ""}, {"request_id": "é"})
        for wrong in refused:
            with pytest.raises(ValueError, match="visible ASCII"):
                await client.start("x", **wrong)


async def test_the_same_key_and_body_give_the_same_run(served: Served) -> None:
    """However the JSON is laid out, and with defaults spelled out or not."""
    key = "order-1"
    first = await ask(served, {"query": "buy", "session_id": "a"}, key)
    bodies = [
        b'{"session_id": "a",   "query":"buy"}',
        json.dumps({"query": "buy", "session_id": "a", "agent": "default"}).encode(),
    ]
    for body in bodies:
        again = await served.http.post("/v1/runs", content=body, headers={"Idempotency-Key": key})
        assert (again.status_code, again.content) == (first.status_code, first.content)
    assert first.json()["run_id"] == hashlib.sha256(b"default\norder-1").hexdigest()[:32]


async def test_the_same_key_with_another_body_is_a_conflict(served: Served) -> None:
    """While the request waits for a planner."""
    assert (await ask(served, {"query": "buy"}, "conflict")).status_code == 202
    for other in ({"query": "sell"}, {"limits": {"deadline_s": None}}, {"tool_context": {"a": 1}}):
        refused = await ask(served, {"query": "buy", **other}, "conflict")
        assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_conflict")


async def test_a_key_is_remembered_as_long_as_the_run_is(served: Served, bus: Bus) -> None:
    """Also when a planner has taken the request, and when the run has ended: the log contains the request."""
    key = "long-ago"
    first = await ask(served, {"query": "buy"}, key)
    run = first.json()["run_id"]
    writer = Writer(bus, run=run)
    await writer.open(**(await requested(bus, run)).model_dump())
    await bus.api("STREAM.PURGE.REQUESTS", {"filter": subjects.request("default", run)})
    assert (await ask(served, {"query": "buy"}, key)).content == first.content
    await writer.done()
    assert (await ask(served, {"query": "buy"}, key)).content == first.content
    assert (await ask(served, {"query": "sell"}, key)).status_code == 409
    assert await bus.last(subjects.REQUESTS, subjects.request("default", run)) is None, "nothing was asked again"


async def test_a_run_that_was_cancelled_before_it_began_keeps_its_key(served: Served, bus: Bus) -> None:
    """The request is not stored, so nothing conflicts."""
    answer = await ask(served, {"query": "buy"}, "never-begun")
    run = answer.json()["run_id"]
    await Writer(bus, run=run).cancelled()
    await bus.api("STREAM.PURGE.REQUESTS", {"filter": subjects.request("default", run)})
    assert (await ask(served, {"query": "sell"}, "never-begun")).json()["run_id"] == run


async def test_of_many_at_once_with_one_key_and_two_bodies_one_body_wins(served: Served, bus: Bus) -> None:
    """The server drops repeated writes whatever they contain, so the stored request is compared afterwards."""
    asked = [{"query": "left" if n % 2 else "right"} for n in range(20)]
    answers = await asyncio.gather(*(ask(served, body, "race") for body in asked))
    run = hashlib.sha256(b"default\nrace").hexdigest()[:32]
    won = (await requested(bus, run)).query
    for body, answer in zip(asked, answers, strict=True):
        assert answer.status_code == (202 if body["query"] == won else 409)


@contextlib.asynccontextmanager
async def room_for(bus: Bus, count: int) -> AsyncIterator[None]:
    """Let the queue of requests hold so many more."""
    known = await bus.api("STREAM.INFO.REQUESTS", {})
    limit = known["state"]["messages"] + count
    await bus.api("STREAM.UPDATE.REQUESTS", {**known["config"], "max_msgs": limit})
    try:
        yield
    finally:
        await bus.api("STREAM.UPDATE.REQUESTS", known["config"])


async def test_a_request_that_is_still_unread_is_accepted_and_a_full_queue_is_not(served: Served, bus: Bus) -> None:
    """Both are the same error code of the server."""
    key = "twice-after-the-window"
    first = await ask(served, {"query": "x"}, key)
    run = first.json()["run_id"]
    # As after the window in which the server remembers message ids.
    await served.parts.writer.store(subjects.request("default", run), b"{}", "another-message-id")
    assert (await requested(bus, run)).query == "x"
    async with room_for(bus, 0):
        assert_unavailable(await ask(served, {"query": "y"}))


def reads_of(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subjects that the gateway reads from now on."""
    found: list[str] = []
    page, request = DirectReader._request, served.parts.bus.request

    async def paged(self: DirectReader, body: dict[str, Any]) -> Any:
        found.append(str(body))
        return await page(self, body)

    async def requested(subject: str, *args: Any, **more: Any) -> Any:
        if "DIRECT.GET" in subject:
            found.append(subject)
        return await request(subject, *args, **more)

    monkeypatch.setattr(DirectReader, "_request", paged)
    monkeypatch.setattr(served.parts.bus, "request", requested)
    return found


@pytest.fixture
async def planner(bus: Bus) -> AsyncIterator[None]:
    """Answers each request at once, as a planner that is faster than any reader."""
    written: set[asyncio.Task[None]] = set()

    async def answer(run: str) -> None:
        writer = Writer(bus, run=run)
        await writer.open()
        last = await writer.chunk("because")
        await writer.log(Done(raw_answer="because", reason="answer_complete", last_stream_seq=last))

    async def on_request(message: Msg) -> None:
        task = asyncio.create_task(answer(subjects.parse(message.subject).run))
        written.add(task)
        task.add_done_callback(written.discard)

    subscription = await bus.subscribe(subjects.request.all, on_request)
    await bus.barrier()
    yield
    await subscription.stop()


@pytest.mark.usefixtures("planner")
async def test_a_new_run_is_followed_without_a_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its beginning nor its end nor its result: all arrive live. `/chat` asks whether lists show its end."""
    reads = reads_of(served, monkeypatch)
    streamed = await served.http.post("/v1/runs", json={"query": "x"}, headers={"Accept": "text/event-stream"})
    events = [line[7:] for line in streamed.text.splitlines() if line.startswith("event: ")]
    assert events == ["run_started", "chunk", "done"]
    answer = await served.http.post("/chat", json={"query": "x"})
    assert answer.json()["payload"]["raw_answer"] == "because"
    assert all(read.startswith("$JS.API.DIRECT.GET.KV_runs.") for read in reads)


async def test_requests_with_one_key_at_the_same_time_are_followed_from_the_beginning(served: Served, bus: Bus) -> None:
    """The server says which of them was stored; the others may have subscribed too late, and read back."""
    body, headers = {"query": "x"}, {"Accept": "text/event-stream", "Idempotency-Key": "followed-together"}
    asking = [asyncio.create_task(served.http.post("/v1/runs", json=body, headers=headers)) for _ in range(5)]
    run = hashlib.sha256(b"default\nfollowed-together").hexdigest()[:32]
    writer = Writer(bus, run=run)
    await wait_until(lambda: bus.last(subjects.REQUESTS, subjects.request("default", run)), what="one is stored")
    await writer.open(**(await requested(bus, run)).model_dump())
    await writer.done()
    texts = {answer.text for answer in await asyncio.gather(*asking)}
    assert len(texts) == 1
    assert "event: done" in texts.pop()


async def test_a_request_that_is_refused_leaves_no_subscription(served: Served, bus: Bus) -> None:
    """The follower had subscribed before the write."""
    headers = {"Accept": "text/event-stream"}
    await bus.publish(subjects.request("default", new_id()), b"{}")
    async with room_for(bus, 0):
        before = set(served.parts.bus.nc._subs)
        assert (await served.http.post("/v1/runs", json={"query": "x"}, headers=headers)).status_code == 503
    assert set(served.parts.bus.nc._subs) <= before


async def test_what_a_request_says_of_its_conversation_is_stored(served: Served, bus: Bus) -> None:
    """Only what the caller set; null takes the model of the summary away, and nothing else."""
    body = {
        "query": "and then?",
        "session_id": "s1",
        "on_busy": "steer",
        "on_paused": "queue",
        "queue_timeout_s": 60,
        "memory": {"recent_turns": 3, "max_tokens": None, "summary_model": None},
    }
    request = await requested(bus, (await ask(served, body)).json()["run_id"])
    assert (request.on_busy, request.on_paused, request.queue_timeout_s) == ("steer", "queue", 60)
    assert request.memory == {"recent_turns": 3, "summary_model": None}
    assert (await requested(bus, (await ask(served, {"query": "x"})).json()["run_id"])).memory == {}


async def test_a_conversation_may_come_with_the_question(served: Served, bus: Bus) -> None:
    """In place of a session; who speaks in it is the user or the assistant."""
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello to you"}]
    accepted = (await ask(served, {"query": "x", "messages": messages})).json()
    assert accepted["session_id"] == f"run-{accepted['run_id']}"
    request = await requested(bus, accepted["run_id"])
    assert [message.model_dump() for message in request.messages] == messages
    both = await ask(served, {"query": "x", "messages": messages, "session_id": "s"})
    assert both.status_code == 422
    assert {error["field"] for error in both.json()["errors"]} == {"messages", "session_id"}
    for wrong in ([{"role": "system", "content": "x"}], messages * 101, [{"role": "user", "content": ""}]):
        assert (await ask(served, {"query": "x", "messages": wrong})).status_code == 422
    large = [{"role": "user", "content": "x" * 93_000}] * 10
    assert (await ask(served, {"query": "x", "messages": large})).json()["code"] == "body_too_large"


def test_a_version_without_sessions_recognises_the_requests_of_this_one() -> None:
    """And the other way round: what a request leaves out is not part of its digest."""
    requested = run_request(KEYLESS, new_id(), RunInput(query="buy", session_id="a"), RequestIds(), [])
    content = {"query": "buy", "session_id": "a", "limits": {}}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    assert requested.body_sha256 == digest
