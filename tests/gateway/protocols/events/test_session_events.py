"""A session's events over HTTP: what happened so far, then live, from every id on."""

import contextlib
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
from nats.aio.msg import Msg

from contracts.sessions.records import ContextSet, SessionDeleted
from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.shared.runs.run_follower import SessionFollower
from tests.support.gateways import Heard, Served, Writer, heard, serving
from tests.support.nats_server import NatsServer
from tests.support.session_writer import SessionWriter
from tests.support.waiting import wait_until


def path_of(session_id: str) -> str:
    return f"/v1/sessions/{quote(session_id, safe='')}/events"


@contextlib.asynccontextmanager
async def listening(served: Served, session_id: str, after: str | None = None) -> AsyncIterator[Heard]:
    async with heard(served, path_of(session_id), after) as (answer, events):
        assert "runwire-run" not in answer.headers
        yield events


@pytest.fixture
async def session(bus: Bus) -> SessionWriter:
    writer = SessionWriter(bus, f"a/b {new_id()}")
    await writer.start()
    return writer


async def test_events_so_far_come_first_and_then_live_ones(served: Served, session: SessionWriter) -> None:
    """The id is the record's sequence, and stands on its last event. Checkpoints are not shown."""
    begun = await session.begin(run := new_id())
    await session.checkpoint()
    async with listening(served, session.session_id) as events:
        kinds = [(event.type, event.id) for event in [await anext(events) for _ in range(3)]]
        assert kinds[1:] == [("run_queued", None), ("run_begun", str(begun))]
        ended = await session.end(run)
        event = await anext(events)
        assert (event.type, event.id) == ("run_ended", str(ended))
        await session.log(SessionDeleted())
        assert (await anext(events)).type == "deleted"
        await session.start()
        assert (await anext(events)).type == "session_started"
        assert len(served.parts.streams) == 1
    await wait_until(lambda: not served.parts.streams, what="nothing is left")


async def test_a_listener_resumes_after_the_id_that_it_had_last(served: Served, session: SessionWriter) -> None:
    """By the header or by the query; 0 is the beginning."""
    ids = [session.state.seq, *[await session.log(ContextSet(values={"n": number})) for number in range(3)]]
    for position, after in enumerate(["0", *map(str, ids[:-1])]):
        async with listening(served, session.session_id, after) as events:
            assert [(await anext(events)).id for _ in ids[position:]] == [str(each) for each in ids[position:]]


async def test_an_id_that_is_none_of_the_session_is_refused(served: Served, session: SessionWriter) -> None:
    """Malformed, beyond its log, or another session's."""
    other = SessionWriter(session.bus, f"other {new_id()}")
    theirs = await other.start()
    await session.log(ContextSet(values={"n": 1}))
    for cursor in ("x", "1-1", "-1", "01", str(theirs), str(session.state.seq + 1), str(2**62)):
        answer = await served.http.get(path_of(session.session_id), headers={"Last-Event-ID": cursor})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_cursor"), cursor


async def test_the_session_of_one_run_has_no_events_yet(served: Served, writer: Writer) -> None:
    """They come as soon as a second request continues it."""
    await writer.open()
    session = SessionWriter(writer.bus, f"run-{writer.run}")
    async with listening(served, session.session_id) as events:
        await wait_until(lambda: len(served.parts.streams) == 1, what="the listener is there")
        await session.start()
        assert (await anext(events)).type == "session_started"


async def test_silence_is_filled_and_listeners_are_counted(shared_nats: NatsServer, session: SessionWriter) -> None:
    """As on the stream of a run."""
    async with serving(shared_nats.url, heartbeat_s=0.1, max_streams_per_tenant=1) as served:
        path = path_of(session.session_id)
        async with served.http.stream("GET", path) as answer:
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                if text.count(": keep-alive\n\n") == 3:
                    break
            refused = await served.http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            assert "run_id" not in refused.json()


async def test_a_live_record_that_is_lost_is_read_back(
    served: Served, session: SessionWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one shows the gap."""
    on_message, lost = SessionFollower._on_message, 0

    def lossy(self: SessionFollower, message: Msg) -> None:
        nonlocal lost
        lost += 1
        if lost > 1:
            on_message(self, message)

    monkeypatch.setattr(SessionFollower, "_on_message", lossy)
    async with listening(served, session.session_id) as events:
        await anext(events)
        for number in range(2):
            await session.log(ContextSet(values={"n": number}))
        assert [f'"n":{number}' in (await anext(events)).data for number in range(2)] == [True, True]
        assert lost == 2
