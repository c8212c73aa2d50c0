"""Publish what a tool sends during a call, progress and pieces of artifacts, to the run's stream.

Rule 1: each piece is published once, and never after a gap. A repeated call sends its pieces again; known ones are
dropped.
Rule 2: a stream with a missing piece, a piece that is too large, or too many pieces ends there. The result still
counts: it may contain the complete artifact.
Rule 3: one warning per call reports all dropped pieces.
"""

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog
from pydantic import ValidationError

from contracts.artifacts import BytesWanted
from contracts.runs.events import ArtifactChunk, ToolProgress
from contracts.tools.messages import ArtifactPiece, CallRequested, Progress
from contracts.wire import subjects
from contracts.wire.base import MAX_PIECE_BYTES, MAX_PIECES, parsed
from contracts.wire.faults import describe
from contracts.wire.records import EVENTS_HEADER, EXPIRES, Record
from services.messaging.connection import Bus
from services.messaging.errors import BusError, Refused
from services.messaging.reads import sequence_of
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound
from services.shared.redaction.stored_values import as_reference
from services.tool_runner.calls.history import events_of
from services.tool_runner.errors import ArtifactStoreFailed, InvalidArguments

logger = structlog.get_logger(__name__)

_MAX_ENCODED_PIECE_BYTES = MAX_PIECE_BYTES + 512
_MAX_CALL_BYTES = 32 << 20
_MAX_STREAMS = 100
"""Streams of one call."""
_MAX_NAMED_STREAMS = 5
"""Streams that a warning names."""
_MAX_FAULT_CHARACTERS = 120
_PROGRESS_INTERVAL_S = 0.05
_GIVING_PATIENCE_S = 10.0
"""How long a store that is away is retried before the tool is told so."""


@dataclass(frozen=True, slots=True)
class FinishedStream:
    """A finished stream of an artifact: its number of pieces. In RUNS, none of them has a sequence below `since`."""

    stream_id: str
    pieces: int
    since: int


class CallProgress:
    """The progress and artifact streams of one call."""

    def __init__(self, bus: Bus, call: CallRequested, *, may_have_published: bool) -> None:
        self._bus = bus
        self._call = call
        self._subject = subjects.stream(call.tenant, call.run_id)
        self._next: dict[str, int] | None = None if may_have_published else {}
        """Stream id -> number of its next piece.

        None: another handling of the call may have published some; read them back first.
        """
        self._ended: dict[str, str] = {}
        """Stream id -> why it ended early. One entry for all pieces without a usable id."""
        self._unnamed = 0
        """Dropped pieces of further streams."""
        self.types: dict[str, str] = {}
        """Stream id -> artifact type, if the tool declares one."""
        self._since: dict[str, int] = {}
        """Stream id -> sequence in RUNS of its first piece."""
        self._finished: set[str] = set()
        self._pieces = self._bytes = 0
        self._last_progress_at = 0.0

    @property
    def streamed(self) -> list[str]:
        """The ids of the published streams, in the order of their first pieces."""
        return list(self._next or ())

    @property
    def finished(self) -> dict[str, FinishedStream]:
        """The streams whose last piece was published, by id."""
        return {
            stream_id: FinishedStream(stream_id, pieces, self._since.get(stream_id, 1))
            for stream_id, pieces in (self._next or {}).items()
            if stream_id in self._finished
        }

    async def on_progress(self, data: bytes) -> None:
        """Publish progress, at most twenty times a second. Messages that cannot be parsed or stored are dropped."""
        if (progress := parsed(Progress, data)) is None:
            return
        now = time.monotonic()
        if now - self._last_progress_at < _PROGRESS_INTERVAL_S and progress.fraction != 1:
            return
        self._last_progress_at = now
        call = self._call
        event = ToolProgress(
            call_id=call.call_id, tool=call.tool, message=progress.message[:2000], fraction=progress.fraction
        )
        record = Record(events=[event])
        try:
            await self._bus.publish(self._subject, record.model_dump_json().encode(), self._headers(record))
        except BusError as error:
            logger.debug("progress_dropped", reason=str(error))

    async def on_piece(self, data: bytes) -> None:
        """Publish a piece of an artifact."""
        try:
            piece = ArtifactPiece.model_validate_json(data)
        except ValidationError as error:
            self._end_stream("", describe(error, limit=1))
            return
        if self._next is None:
            self._next = await self._read_back()
        if piece.stream_id in self._ended or piece.seq < self._next.get(piece.stream_id, 0):
            return
        fault = self._fault(piece, len(data))
        if fault is None:
            fault = await self._publish(piece)
        if fault is not None:
            self._end_stream(piece.stream_id, fault)

    async def bytes_of(self, wanted: BytesWanted) -> bytes:
        """Return bytes of an artifact that the arguments refer to. Raises InvalidArguments and ArtifactStoreFailed."""
        refs = map(as_reference, self._call.args.values())
        if not any(ref is not None and ref.artifact_id == wanted.artifact_id for ref in refs):
            raise InvalidArguments(f"the arguments refer to no artifact {wanted.artifact_id}")
        try:
            client = ArtifactClient(self._bus, patience_s=_GIVING_PATIENCE_S)
            artifact_id, length = wanted.artifact_id, wanted.length
            found = await client.get(self._call.tenant, artifact_id, offset=wanted.offset, length=length)
            return await found.read(length)
        except ArtifactNotFound as error:
            raise InvalidArguments(f"the arguments refer to no artifact {wanted.artifact_id}") from error
        except ArtifactFailed as error:
            reason = f"the artifact {wanted.artifact_id} cannot be read now: {error.reason}"
            raise ArtifactStoreFailed(reason, error) from error

    def _end_stream(self, stream_id: str, fault: str) -> None:
        if stream_id in self._ended:
            return
        if len(self._ended) < _MAX_STREAMS:
            self._ended[stream_id] = fault[:_MAX_FAULT_CHARACTERS]
        else:
            self._unnamed += 1

    def warnings(self, unclaimed: Iterable[str] = (), gone: Iterable[str] = ()) -> list[str]:
        """Return one warning about dropped pieces, or none.

        `unclaimed`: streams that no field of the result contains, so they are lost without a last piece; `gone`:
        streams of which pieces have expired.
        """
        finished = self.finished
        lost = {stream_id: "its last piece never came" for stream_id in unclaimed if stream_id not in finished}
        lost |= dict.fromkeys(gone, "pieces of it have expired") | self._ended
        if not lost:
            return []
        named = [f"{stream_id or 'a piece'} ({fault})" for stream_id, fault in list(lost.items())[:_MAX_NAMED_STREAMS]]
        rest = [
            f"{count:,} more {what}"
            for count, what in ((len(lost) - len(named), "streams"), (self._unnamed, "pieces"))
            if count
        ]
        logger.warning("artifact_pieces_dropped", streams=len(lost), pieces=self._unnamed, reasons=named)
        return [f"pieces of artifacts of {self._call.tool} were dropped: {'; '.join([*named, *rest])}"]

    def _fault(self, piece: ArtifactPiece, size: int) -> str | None:
        self._pieces += 1
        self._bytes += size
        known = self._next or {}
        expected = known.get(piece.stream_id, 0)
        if piece.seq > expected:
            return f"piece {expected} is missing"
        if size > _MAX_ENCODED_PIECE_BYTES:
            return f"piece {piece.seq} has {size:,} bytes, and at most {_MAX_ENCODED_PIECE_BYTES:,} are taken"
        if piece.stream_id not in known and len(known) >= _MAX_STREAMS:
            return f"a call may have {_MAX_STREAMS} streams"
        return (
            "there are too many pieces"
            if max(self._pieces, expected + 1) > MAX_PIECES or self._bytes > _MAX_CALL_BYTES
            else None
        )

    async def _publish(self, piece: ArtifactPiece) -> str | None:
        call = self._call
        mark = hashlib.sha256(f"{piece.stream_id}\n{piece.seq}".encode(errors="replace")).hexdigest()[:24]
        try:
            record = Record(events=[ArtifactChunk(**dict(piece), tool=call.tool, call_id=call.call_id)])
            body = record.model_dump_json().encode()
            sequence = await self._bus.publish_surely(
                self._subject, body, f"{call.run_id}.{call.call_id}.{mark}", self._headers(record)
            )
        except (ValueError, RecursionError, Refused) as error:
            return str(error)[:200]
        if self._next is not None:
            self._next[piece.stream_id] = piece.seq + 1
        self._note(piece, max(sequence, 1))
        return None

    def _note(self, piece: ArtifactPiece | ArtifactChunk, sequence: int) -> None:
        self._since.setdefault(piece.stream_id, sequence)
        if piece.artifact_type:
            self.types.setdefault(piece.stream_id, piece.artifact_type)
        if piece.done:
            self._finished.add(piece.stream_id)

    async def _read_back(self) -> dict[str, int]:
        """Note the stored pieces of this call, and return the number of the next piece by stream id."""
        found: dict[str, int] = {}
        for message in await (await self._bus.reader(subjects.RUNS)).messages(self._subject):
            if (message.headers or {}).get(EVENTS_HEADER) != "artifact_chunk":
                continue
            for piece in events_of(message.data):
                if isinstance(piece, ArtifactChunk) and piece.call_id == self._call.call_id:
                    found[piece.stream_id] = max(found.get(piece.stream_id, 0), piece.seq + 1)
                    self._note(piece, sequence_of(message))
        return found

    @staticmethod
    def _headers(record: Record) -> dict[str, str]:
        return {EVENTS_HEADER: record.types(), **EXPIRES}
