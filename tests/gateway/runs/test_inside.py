"""Where the events of a run are stored, prompts without a planner, and the list of runs that wait for a person."""

import pytest

from contracts.runs.events import Chunk
from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.records import EVENTS_HEADER
from services.gateway.runs import routes
from tests.support.gateways import Served, Writer


async def test_records_are_those_of_the_stream_of_events(served: Served, writer: Writer) -> None:
    """By sequence, over both subjects, in pages; the server's own headers are left out."""
    await writer.open()
    await writer.stream(Chunk(stream_id="answer", seq=0, offset=0, text="x", action_seq=1, attempt=1))
    await writer.done()
    url = f"/v1/runs/{writer.run}/records"
    records = (await served.http.get(url)).json()["records"]
    of_run = {"log": subjects.log("default", writer.run), "stream": subjects.stream("default", writer.run)}
    assert [(each["sequence"], each["subject"]) for each in records] == [
        (sequence, of_run[kind]) for kind, sequence, _ in writer.stored
    ]
    assert [each["headers"] for each in records] == [{EVENTS_HEADER: each.types()} for _, _, each in writer.stored]
    times = [each["at"] for each in records]
    assert times == sorted(times)
    assert all(
        abs(each["at"] - record.at) < 60_000 for each, (_, _, record) in zip(records, writer.stored, strict=True)
    )
    ids = [
        line[4:]
        for line in (await served.http.get(f"/v1/runs/{writer.run}/events")).text.split("\n")
        if line[:3] == "id:"
    ]
    assert all(any(str(each["sequence"]) in of_event.split("-") for each in records) for of_event in ids)
    pages = (await served.http.get(url, params={"limit": 1, "after": records[0]["sequence"]})).json()["records"]
    assert pages == records[1:2]
    for after, status in (((1 << 53) - 1, 200), (1 << 53, 422), (1 << 64, 422)):  # NATS counts in 64 bits.
        assert (await served.http.get(url, params={"after": after})).status_code == status
    assert (await served.http.get(f"/v1/runs/{new_id()}/records")).status_code == 404


async def test_without_a_planner_there_is_no_prompt(
    served: Served, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503, to be asked again."""
    monkeypatch.setattr(routes, "PROMPT_WAIT_S", 0.2)
    await writer.open()
    assert (await served.http.get(f"/v1/runs/{writer.run}/prompt")).status_code == 503
