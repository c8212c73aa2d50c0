"""Progress and pieces of artifacts during a call: published once, in order, without gaps."""

import json
from typing import Any

import pytest

from contracts.runs.events import ArtifactChunk, ToolProgress
from contracts.tools.messages import CallRequested
from contracts.wire import subjects
from contracts.wire.records import Record
from services.tool_runner.calls.progress import CallProgress
from tests.tool_runner.conftest import Planner, call_requested


def piece(seq: int, chunk: Any = "x", stream_id: str = "s", *, done: bool = False) -> bytes:
    return json.dumps({"stream_id": stream_id, "seq": seq, "chunk": chunk, "done": done}).encode()


@pytest.fixture
async def call(planner: Planner) -> CallRequested:
    return call_requested("painter", run_id=await planner.open_run())


async def numbers(planner: Planner, call: CallRequested, stream_id: str = "s") -> list[int]:
    """The numbers of the pieces that were shown."""
    return [
        event.seq
        for event in await planner.shown(call.run_id)
        if isinstance(event, ArtifactChunk) and event.stream_id == stream_id
    ]


async def test_a_repeated_call_publishes_only_new_pieces(planner: Planner, call: CallRequested) -> None:
    """The first handling died after two pieces; the second one reads them back."""
    first, second = (
        CallProgress(planner.bus, call, may_have_published=False),
        CallProgress(planner.bus, call, may_have_published=True),
    )
    other = CallProgress(planner.bus, call.model_copy(update={"call_id": "1-1"}), may_have_published=False)
    for seq in (0, 1):
        await first.on_piece(piece(seq))
    await other.on_piece(piece(0, stream_id="other"))

    for seq in (0, 1, 2):
        await second.on_piece(piece(seq))

    assert await numbers(planner, call) == [0, 1, 2]
    assert second.streamed == ["s"]


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", piece(0, "x" * 140_000), piece(0, stream_id="s" * 300), b'{"stream_id": "s", "seq": -1, "chunk": 1}'],
    ids=["empty", "no fields", "heavy", "long name", "negative"],
)
async def test_an_invalid_piece_is_dropped(planner: Planner, call: CallRequested, data: bytes) -> None:
    """Other streams continue."""
    progress = CallProgress(planner.bus, call, may_have_published=False)
    await progress.on_piece(data)
    await progress.on_piece(piece(0, stream_id="t"))
    assert [event.stream_id for event in await planner.shown(call.run_id) if isinstance(event, ArtifactChunk)] == ["t"]


NAMES = ("../../x", "..", ".hidden", "-x", "a/b", "a b", "größe", "s\n1", "", "s" * 129)
TYPES = ("text/html\r\nX: y", "<b>", "a/b/c", "../x", "x" * 65, "text/plain; charset=utf-8; b=c")


async def test_a_name_is_nothing_but_a_name_and_a_type_a_word_or_a_media_type(
    planner: Planner, call: CallRequested
) -> None:
    """They are part of payloads, file names and headers."""
    right = {"stream_id": "s", "seq": 0, "chunk": 1, "artifact_type": "text/plain; charset=utf-8"}
    for field, wrong in [*(("stream_id", name) for name in NAMES), *(("artifact_type", kind) for kind in TYPES)]:
        progress = CallProgress(planner.bus, call, may_have_published=False)
        await progress.on_piece(json.dumps({**right, field: wrong}).encode())
        (warning,) = progress.warnings()
        assert warning.startswith(
            f"pieces of artifacts of painter were dropped: a piece ({field}: String should match pattern"
        ), wrong
    assert await planner.shown(call.run_id) == []
    await progress.on_piece(json.dumps(right).encode())
    assert len(await planner.shown(call.run_id)) == 1


async def test_what_is_lost_is_named_with_the_reason(planner: Planner, call: CallRequested) -> None:
    """A stream that a field of the result holds is not lost for want of its last piece."""
    progress = CallProgress(planner.bus, call, may_have_published=False)
    heavy = piece(0, "x" * 140_000, stream_id="heavy")
    for data in (piece(1, stream_id="late"), heavy, piece(0, stream_id="open"), piece(0, stream_id="field")):
        await progress.on_piece(data)
    (warning,) = progress.warnings(["open"], ["old"])
    assert warning == (
        "pieces of artifacts of painter were dropped: open (its last piece never came);"
        " old (pieces of it have expired);"
        f" late (piece 0 is missing); heavy (piece 0 has {len(heavy):,} bytes, and at most 131,584 are taken)"
    )


async def test_a_finished_stream_says_where_its_pieces_are(planner: Planner, call: CallRequested) -> None:
    """Whichever handling has published them."""
    await planner.show(call.run_id, ToolProgress(call_id="1-0", tool="painter"))
    handlings = [CallProgress(planner.bus, call, may_have_published=doubtful) for doubtful in (False, False, True)]
    for progress in handlings:
        await progress.on_piece(piece(0, stream_id="unfinished"))
        for seq in (0, 1):
            await progress.on_piece(piece(seq, done=seq == 1))

    first = handlings[0].finished["s"]
    assert [progress.finished for progress in handlings] == [{"s": first}] * 3
    assert (first.stream_id, first.pieces) == ("s", 2)
    reader = await planner.bus.reader(subjects.RUNS)
    stored = await reader.read(subjects.stream("default", call.run_id), first.since)
    events = [event for _, data in stored for event in Record.model_validate_json(data).events]
    assert [event.seq for event in events if isinstance(event, ArtifactChunk)] == [0, 1]
