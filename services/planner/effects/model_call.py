"""Calls a model and streams its reply to the run's listeners.

Chunks are stored before the decision is recorded, and the final chunk with it, so sequence order is reading order.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace

import structlog

from contracts.runs.events import Asked
from contracts.runs.payload import Usage
from contracts.wire.faults import Fault
from services.messaging.connection import Bus
from services.planner.effects.chunk_publisher import ChunkPublisher
from services.planner.logs.ownership_watch import Address, OwnershipWatch
from services.planner.models.errors import REPLY_FILTERED, ModelFailed
from services.planner.models.types import CallPiece, Delta, Ending, Reply
from services.planner.run.turn.decision import Calls, Decision, Failed, Final, Invalid, OwnDecision
from services.planner.strategies.base import Reading
from services.runtime.tasks import cancelled

logger = structlog.get_logger(__name__)

RANDOM = random.SystemRandom()
CUT_COMPLAINT = (
    "Your reply was cut at the limit of its length. Reply again from the beginning, and so briefly that it is whole."
)
_CUT_BY: dict[Ending, str] = {
    "limit": "the model reached the limit of its output",
    "filtered": "the provider filtered the rest",
    "broken": "the model or its server broke off",
}
_CLOSINGS = ("}", "```")
"""Ends of a reply that is a JSON object."""
MAX_INLINE_CHARACTERS = 16_000
"""A longer reply is parsed in a thread."""
CHARACTERS_PER_SLICE = 1000
"""Parsed before the event loop runs other tasks: parsing takes up to 20 µs per character."""


async def ask(
    bus: Bus,
    address: Address,
    publisher: ChunkPublisher,
    stream: AsyncGenerator[Delta | Reply, None],
    reading: Reading,
    answer_of: Callable[[Decision], tuple[Decision, str]],
    *,
    is_recorded_next: bool,
) -> Decision | None:
    """Stream one reply and return its decision; None when the call is superseded, whose request is then closed.

    `answer_of`: returns the resolved decision, and the full text of the answer that ends the run (empty: none).
    `is_recorded_next`: the decision is recorded at once, so the final chunk of the reply is recorded with it.
    """
    consuming = asyncio.create_task(_consume(stream, reading, publisher))
    publisher.on_stop = consuming.cancel
    watch = OwnershipWatch(bus, address, publisher.check)
    decision = None
    try:
        await asyncio.wait({consuming})
        if not publisher.stopped:
            decision, answer = answer_of(consuming.result())
            publisher.hold()
            decision = _say_the_rest(publisher, reading, decision, answer)
            # What was shown of a failed reply is read where no other reply follows.
            is_held = is_recorded_next and not decision.restate and not isinstance(decision, Failed)
            decision = await _finished(publisher, decision, holds=is_held)
        await publisher.drained()
        return None if publisher.superseded else decision
    finally:
        publisher.stop()
        await watch.stop()
        if not consuming.done():
            await cancelled(consuming)
        await stream.aclose()


async def say(publisher: ChunkPublisher, decision: Decision, answer: str, *, is_recorded_next: bool) -> Decision | None:
    """Stream a known answer without a model call, as `ask` does. Returns None when the call is superseded."""
    publisher.hold()
    publisher.say("answer", answer[publisher.offset :], done=decision.said is None)
    decision = await _finished(publisher, decision, holds=is_recorded_next)
    return None if publisher.superseded else decision


async def _finished(publisher: ChunkPublisher, decision: Decision, *, holds: bool) -> Decision:
    """Wait for the chunks of a complete reply. Returns the decision with what is stored with it."""
    if not (holds and publisher.is_brief):
        publisher.release()
    await publisher.drained()
    words = publisher.last_words()
    if not (words or publisher.stream_seq):
        return decision
    return replace(decision, last_words=words, stream_seq=publisher.stream_seq, chunks=publisher.chunks)


def in_parts(piece: Delta) -> Iterator[Delta]:
    """Split a delta into short parts, since some servers send a whole reply at once."""
    call = piece.call
    if max(len(piece.text), len(piece.reasoning), len(call.arguments) if call else 0) <= CHARACTERS_PER_SLICE:
        yield piece
        return
    for start in range(0, len(piece.reasoning), CHARACTERS_PER_SLICE):
        yield Delta(reasoning=piece.reasoning[start : start + CHARACTERS_PER_SLICE])
    for start in range(0, len(piece.text), CHARACTERS_PER_SLICE):
        yield Delta(text=piece.text[start : start + CHARACTERS_PER_SLICE])
    if call is not None:
        for start in range(0, len(call.arguments) or 1, CHARACTERS_PER_SLICE):
            yield Delta(
                call=CallPiece(
                    call.index, "" if start else call.name, call.arguments[start : start + CHARACTERS_PER_SLICE]
                )
            )


def _feed(piece: Delta, reading: Reading, publisher: ChunkPublisher) -> None:
    if piece.reasoning and (thought := reading.feed_reasoning(piece.reasoning)):
        publisher.say("thinking", thought)
    visible = reading.feed(piece.text) if piece.text else reading.feed_call(piece.call) if piece.call else ""
    if visible:
        publisher.say("answer", visible)
    if piece.text and reading.block_begun is not None:
        publisher.note_block(reading.block_begun)


async def _consume(
    stream: AsyncGenerator[Delta | Reply, None], reading: Reading, publisher: ChunkPublisher
) -> Decision:
    try:
        async for piece in stream:
            if isinstance(piece, Reply):
                # A reply of megabytes takes seconds to read; other runs stream meanwhile.
                size = len(piece.text) + len(piece.reasoning or "")
                size += sum(len(call["function"]["arguments"]) for call in piece.tool_calls)
                is_long = size > MAX_INLINE_CHARACTERS
                read = await asyncio.to_thread(reading.decide, piece) if is_long else reading.decide(piece)
                if piece.warnings:
                    read = replace(read, warnings=(*read.warnings, *piece.warnings))
                if isinstance(read, Calls) and read.opaque != piece.opaque:
                    read = replace(read, opaque=piece.opaque)
                return read if piece.ending == "whole" or _is_closed(read, piece) else _cut(read, piece, reading.shown)
            for part in in_parts(piece):
                _feed(part, reading, publisher)
                if part is not piece:
                    await asyncio.sleep(0)
    except ModelFailed as error:
        return _failed(error, publisher.asked, reading.shown)
    raise AssertionError("a model's stream ends with its Reply")


def _is_closed(decision: Decision, reply: Reply) -> bool:
    """Whether the reply itself says where it ends: a whole action does, and a text does not."""
    written = (reply.tool_calls[-1]["function"]["arguments"] if reply.tool_calls else reply.text).rstrip()
    match decision:
        case Calls():
            return bool(written)  # A call that was cut behind its name has no arguments.
        case Final():
            answer = str(decision.args.get("answer", "")).strip()
            return decision.said is None and not written.endswith(answer or written)
        case OwnDecision():
            return written.endswith(_CLOSINGS)
        case _:
            return False


def _cut(decision: Decision, reply: Reply, shown: str) -> Invalid | Failed:
    """Return what is done about a reply that was cut: the model is asked again, and at last its part is the answer.

    `shown`: the part that listeners have received.
    """
    why = _CUT_BY[reply.ending]
    if not isinstance(decision, Final) and shown.strip():
        decision = Final(args={"answer": shown}, usage=reply.usage, reasoning=reply.reasoning)
    salvage = None
    if isinstance(decision, Final):
        warnings = (*decision.warnings, f"the answer is cut: {why}")
        salvage = replace(decision, args={**decision.args, "route": "partial"}, warnings=warnings)
    if reply.ending == "limit":
        return Invalid(complaint=CUT_COMPLAINT, reply=reply.text, salvage=salvage, usage=reply.usage)
    is_filtered = reply.ending == "filtered"
    code = REPLY_FILTERED.code if is_filtered else "model_failed"
    fault = Fault(code=code, reason=f"the reply of {reply.model} was cut: {why}", retryable=True)
    return Failed(fault=fault, elsewhere=True, salvage=salvage, chance=RANDOM.random(), usage=reply.usage)


def _failed(error: ModelFailed, asked: Asked, shown: str) -> Failed:
    logger.info(
        "model_request_failed",
        model=asked.model,
        attempt=asked.attempt,
        code=error.fault.code,
        reason=error.fault.reason,
        status=error.status,
        after_output=error.after_output,
    )
    return Failed(
        fault=error.fault,
        elsewhere=error.elsewhere,
        refusal=error.refusal,
        shown=shown,
        retry_after_s=error.retry_after_s,
        chance=RANDOM.random(),
        # No provider reports the cost of a reply that broke off.
        usage=Usage(model_calls=error.calls, cost_usd=0.0, estimated=error.after_output),
    )


def _say_the_rest(publisher: ChunkPublisher, reading: Reading, decision: Decision, answer: str) -> Decision:
    """Stream the rest of the answer. If the streamed text is not a prefix of it, set `restate` instead."""
    if publisher.has_text("thinking"):
        publisher.say("thinking", "", done=True)
    is_part = decision.said is not None
    if not is_part and not (answer and isinstance(decision, Final)):
        return decision
    if not answer.startswith(reading.shown):
        return replace(decision, restate=True)
    if (rest := answer.removeprefix(reading.shown)) or not is_part:
        publisher.say("answer", rest, done=not is_part)
    return decision
