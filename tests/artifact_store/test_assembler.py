"""An artifact stream becomes one value, or an artifact: over a real NATS server and every S3 server."""

import asyncio
import base64
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts.artifacts import ArtifactRef
from contracts.runs.events import ArtifactChunk, ToolProgress
from contracts.wire import subjects
from contracts.wire.names import new_id
from contracts.wire.records import EVENTS_HEADER, Record
from services.messaging.connection import Bus
from services.shared.artifacts.client import ArtifactClient, Assembled
from services.shared.artifacts.errors import ArtifactNotFound
from tests.support.stores import Store

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 500


def base64_of(body: bytes, size: int = 60_000) -> list[str]:
    return [base64.b64encode(body[start : start + size]).decode() for start in range(0, len(body), size)]


def points(count: int) -> list[dict[str, Any]]:
    """Pieces of a chart, of some 100 KB each."""
    chance = random.Random(1)
    return [
        {"series": [{"data": [round(chance.random(), 9) for _ in range(9_000)], "name": "größe"}]} for _ in range(count)
    ]


@dataclass
class Run:
    """The stream subject of a run, to publish pieces on as tool_runner does, and a client that assembles."""

    bus: Bus
    client: ArtifactClient
    tenant: str
    run: str = field(default_factory=new_id)

    @property
    def subject(self) -> str:
        return subjects.stream(self.tenant, self.run)

    async def show(self, event: ArtifactChunk | ToolProgress, **headers: str) -> int:
        record = Record(events=[event])
        return await self.bus.publish(
            self.subject, record.model_dump_json().encode(), {EVENTS_HEADER: record.types(), **headers}
        )

    async def piece(
        self, seq: int, chunk: Any, *, done: bool = False, call: str = "1-0", stream: str = "s", kind: str = ""
    ) -> int:
        piece = ArtifactChunk(
            stream_id=stream, seq=seq, chunk=chunk, done=done, artifact_type=kind or None, tool="t", call_id=call
        )
        return await self.show(piece)

    async def pieces(self, chunks: Sequence[Any], kind: str = "", stream: str = "s") -> int:
        """Store a stream from its first piece to its last."""
        for seq, chunk in enumerate(chunks):
            await self.piece(seq, chunk, done=seq == len(chunks) - 1, stream=stream, kind=kind if seq == 0 else "")
        return len(chunks)

    async def assembled(
        self, pieces: int, *, call: str = "1-0", stream: str = "s", artifact_id: str = "", **more: Any
    ) -> Assembled:
        artifact_id = artifact_id or new_id()
        asked = {"run": self.run, "session": "s", "namespace": "t", **more}
        tenant = asked.pop("tenant", self.tenant)
        return await self.client.assemble(
            tenant, asked.pop("run"), call, stream, pieces=pieces, artifact_id=artifact_id, **asked
        )

    async def purge(self) -> None:
        await self.bus.api(f"STREAM.PURGE.{subjects.RUNS}", {"filter": self.subject})


@pytest.fixture
def run(embedded: Store) -> Run:
    """On the embedded S3 server."""
    return Run(embedded.bus, embedded.client, embedded.tenant)


LIGHT: list[tuple[str, list[Any], str, Any]] = [
    ("text", ["one, ", "", "zwölf \u2028 \U0001f600"], "text", "one, zwölf \u2028 \U0001f600"),
    ("text without a type", ["a", "b"], "", "ab"),
    ("one empty text", [""], "", ""),
    ("base64 without a binary type", base64_of(b"abc"), "text/plain", "YWJj"),
    ("binary", base64_of(PDF[:900], 100), "application/pdf", PDF[:900]),
    ("bytes, none", [""], "bytes", b""),
    ("what is no base64, of a binary type", ["YWJj", "no base64"], "binary", "YWJjno base64"),
    ("lists", [[0], [1, {}]], "", [[0], [1, {}]]),
    ("all kinds", ["a", None, 1.5, True, {"k": [2**80 + 1]}], "binary", ["a", None, 1.5, True, {"k": [2**80 + 1]}]),
]


@pytest.mark.parametrize(("chunks", "kind", "value"), [case[1:] for case in LIGHT], ids=[case[0] for case in LIGHT])
async def test_what_is_light_is_answered_as_it_is(
    run: Run, embedded: Store, chunks: list[Any], kind: str, value: Any
) -> None:
    """Texts are joined, base64 of a binary type is bytes, any other JSON the list of the pieces; nothing is kept."""
    found = await run.assembled(await run.pieces(chunks, kind))
    assert (type(found), found) == (type(value), value)
    assert not embedded.objects()
    assert not (await embedded.client.list(run.tenant, run=run.run)).artifacts


async def test_pieces_are_found_among_everything_else(run: Run) -> None:
    """Other streams, other calls, what a second handling has shown again, and events that are no pieces."""
    await run.piece(0, "of another call than 1-0", call="1-1")
    since = await run.piece(0, "a")
    await run.piece(0, "wrong", stream="s2")
    await run.show(ToolProgress(call_id="1-0", tool="t", message="1-0"))
    for seq, chunk in ((1, "b"), (0, "again"), (1, "again"), (2, "c")):
        await run.piece(seq, chunk, done=seq == 2)
    await run.piece(3, "after its end")
    for known in (1, since):
        assert await run.assembled(3, since=known) == "abc"


async def test_where_pieces_are_missing_there_is_no_artifact(run: Run, embedded: Store) -> None:
    """A gap, fewer than there should be, another run, another tenant's run: one fault, and nothing is kept."""
    chunks = points(3)
    await run.pieces(chunks)
    for seq in (0, 2):
        await run.piece(seq, chunks[seq], stream="gap", done=seq == 2)
    strangers: list[dict[str, Any]] = [
        {"run": new_id()},
        {"tenant": f"{run.tenant}-b"},
        {"stream": "gap", "pieces": 2},
        {"call": "1-1"},
        {"pieces": 4},
    ]
    for stranger in strangers:
        with pytest.raises(ArtifactNotFound):
            await run.assembled(**{"pieces": 3, **stranger})
    assert not embedded.objects()
    assert isinstance(await run.assembled(3), ArtifactRef)


async def test_whoever_asks_again_gets_the_same_reference(run: Run, embedded: Store) -> None:
    """At the same time, afterwards, and when the pieces are long gone; in the scope of the run alone."""
    artifact_id, pieces, reads = new_id(), await run.pieces(points(30)), []

    async def on_read(message: Msg) -> None:
        reads.append(message.data)

    subscription = await run.bus.nc.subscribe(f"$JS.API.DIRECT.GET.{subjects.RUNS}", cb=on_read)
    await run.bus.barrier()
    refs = await asyncio.gather(*(run.assembled(pieces, artifact_id=artifact_id) for _ in range(5)))
    await run.bus.barrier()
    await subscription.unsubscribe()
    assert len([read for read in reads if run.subject.encode() in read]) == 1
    refs.append(await run.assembled(pieces, artifact_id=artifact_id))
    await run.purge()
    refs.append(await run.assembled(pieces, artifact_id=artifact_id))
    (ref,) = {ref.artifact_id if isinstance(ref, ArtifactRef) else "" for ref in refs}
    assert ref == artifact_id
    assert len(embedded.objects()) == 1
    assert len((await embedded.client.list(run.tenant, run=run.run)).artifacts) == 1
    for stranger in ({"run": new_id()}, {"session": "other"}):
        with pytest.raises(ArtifactNotFound):
            await run.assembled(pieces, artifact_id=artifact_id, **stranger)
