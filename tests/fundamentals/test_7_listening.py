"""Everything that happens in a run can be listened to: by HTTP as Server-Sent Events, or by NATS alone."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import nats
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from runwire import Client
from tests.support.buses import processed
from tests.support.model_server import ModelServer, Say, answer, words
from tests.support.nats_server import NatsServer

Event = dict[str, Any]
TERMINAL = {"done", "error", "cancelled"}


async def records(
    http: httpx.AsyncClient, run_id: str, after: str = ""
) -> AsyncGenerator[tuple[str, list[Event]], None]:
    """Read Server-Sent Events: the id of each record, and its events. The id comes with a record's last event."""
    async with http.stream(
        "GET", f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": after} if after else {}
    ) as body:
        events: list[Event] = []
        async for line in body.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "data":
                events.append(json.loads(value))
            elif name == "id":
                yield value, events
                events = []


async def test_a_broken_stream_is_resumed_without_gap_or_repetition(
    client: Client, http: httpx.AsyncClient, model: ModelServer
) -> None:
    """The connection is lost after every second record; each time the client comes back with the last id."""
    model.say(Say(text=answer(words(40)).text, pause_s=0.01))
    run_id = await client.start("Tell me a story", agent="scripted")
    seen: list[Event] = []
    last_id, connections = "", 0
    while not seen or seen[-1]["type"] not in TERMINAL:
        connections += 1
        async with aclosing(records(http, run_id, after=last_id)) as stream:
            for _ in range(2):
                last_id, events = await anext(stream)
                seen += events
                if events[-1]["type"] in TERMINAL:
                    break

    assert connections > 3
    assert seen == [event async for _, events in records(http, run_id) for event in events]
    nothing_more = await http.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": last_id})
    assert nothing_more.status_code == 204


async def test_a_listener_needs_nothing_but_a_nats_client(
    tutorial_nats: NatsServer, client: Client, http: httpx.AsyncClient
) -> None:
    """Subscribe, then read what is stored, then take what comes live: all of the run, each event once.

    As the operator; a tenant's own listener has live records, and reads what is stored over HTTP.
    """
    run_id = await client.start("Take a nap of 1 second")
    async for event in client.follow(run_id):
        if event.type == "tool_progress":
            break  # The run is under way: half of its events are stored, the others will come live.

    async with await nats.connect(tutorial_nats.url, **tutorial_nats.login("operator")) as connection:
        live = await connection.subscribe(f"run.default.{run_id}.*")
        await processed(connection)
        stored = [
            message
            for kind in ("log", "stream")
            async for message in stored_messages(connection.jetstream(), f"emit.default.{run_id}.{kind}")
        ]
        seen: dict[int, list[Event]] = {message.seq or 0: events_of(message.data or b"") for message in stored}
        backlog = len(seen)
        while not any(event["type"] in TERMINAL for events in seen.values() for event in events):
            message = await live.next_msg(timeout=20)
            assert message.headers is not None
            seen[int(message.headers["Nats-Sequence"])] = events_of(message.data)

    assert 0 < backlog < len(seen)
    received = [event["type"] for _, events in sorted(seen.items()) for event in events]
    assert received == [event["type"] async for _, events in records(http, run_id) for event in events]


async def stored_messages(stream: JetStreamContext, subject: str) -> AsyncIterator[Any]:
    """What the stream RUNS holds under a subject, oldest first."""
    sequence = 1
    while True:
        try:
            message = await stream.get_msg("RUNS", seq=sequence, subject=subject, direct=True, next=True)
        except NotFoundError:
            return
        yield message
        sequence = (message.seq or 0) + 1


def events_of(data: bytes) -> list[Event]:
    """A message holds one record: all events of one transition of the run."""
    events: list[Event] = json.loads(data)["events"]
    return events
