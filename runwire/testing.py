"""Test a tool without a server.

`await my_tool(args, RecordingContext())` calls the function itself; `await my_tool.run({…}, RecordingContext())` does
what a server does with a call: it checks JSON arguments, runs the function, checks the result and returns it as JSON.
"""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from contracts.artifacts import ArtifactRef
from contracts.runs.pauses import PauseAnswer
from contracts.wire import names
from contracts.wire.base import PART_BYTES
from runwire.tools.context import Awaited, Paused, Pauses, ToolLogger, encode_content, encode_piece, known

__all__ = ["Paused", "RecordingContext", "Rejected"]


@dataclass(frozen=True)
class Rejected:
    """The answer of a person who says no, for `RecordingContext.answers`."""

    note: str = ""


@dataclass
class RecordingContext(Pauses):
    """A ToolContext that records what the function reports. Every field may be given, `cancelled=True` for instance.

    `progressed` holds (message, fraction) of each report, `pieces` the artifact chunks by stream id, `finished` the
    stream ids whose last piece said `done`, `content` the last text for the model. `request_id` and `context_id` are
    those of a caller who named no request, unless they are given.

    `artifacts` holds the bytes of those that arguments refer to, by id.

    `answers` are those to the function's pauses, in their order: JSON values or models, True for an approval,
    `Rejected(note)` for a rejection. A pause without an answer raises `Paused`, whose `pause` says what was asked;
    `state` is what the next round is given.
    """

    call_id: str = "1-0"
    run_id: str = field(default_factory=names.new_id)
    tenant: str = "default"
    session_id: str | None = None
    user_id: str | None = None
    trace_id: str | None = None
    request_id: str = ""
    context_id: str = ""
    idempotency_key: str = ""
    deadline_at: int = 253_402_300_799_999
    context: Mapping[str, Any] = field(default_factory=dict)
    logger: ToolLogger = field(default_factory=lambda: logging.getLogger("runwire.testing"))
    cancelled: bool = False
    progressed: list[tuple[str, float | None]] = field(default_factory=list)
    pieces: dict[str, list[Any]] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    content: str = ""
    artifacts: Mapping[str, bytes] = field(default_factory=dict)
    answers: Sequence[Any] = ()
    state: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.request_id = self.request_id or self.run_id
        self.context_id = self.context_id or self.session_id or self.run_id
        self.idempotency_key = self.idempotency_key or f"{self.run_id}.{self.call_id}"
        answers = []
        for number, given in enumerate(self.answers):
            if isinstance(given, Rejected):
                answers.append(PauseAnswer(number=number, decision="reject", note=given.note))
            else:
                value = from_json(to_json(given, by_alias=True))
                answers.append(PauseAnswer(number=number, decision="answer", input=value))
        super().__init__(answers, self.state)

    def progress(self, message: str = "", fraction: float | None = None) -> Awaitable[None]:
        """Record a report of progress."""
        self.progressed.append((message, fraction))
        return known(None)

    def emit_artifact(
        self, *, stream_id: str, chunk: Any, done: bool = False, artifact_type: str | None = None
    ) -> Awaitable[None]:
        """Record a piece, with the checks of a server: raises ValueError when it is not JSON or above 128 KiB."""
        pieces = self.pieces.setdefault(stream_id, [])
        encode_piece(stream_id, len(pieces), chunk, done=done, artifact_type=artifact_type)
        pieces.append(chunk)
        if done:
            self.finished.add(stream_id)
        return known(None)

    def read_artifact(self, artifact: ArtifactRef, offset: int = 0, length: int = PART_BYTES) -> Awaited[bytes]:
        """Return bytes of `artifacts`."""
        return known(self.artifacts[artifact.artifact_id][offset : offset + min(length, PART_BYTES)])

    def set_content(self, text: str) -> None:
        """Keep the text for the model. Raises ValueError above 32 KiB."""
        encode_content(text)
        self.content = text
