"""The messages of model requests, each encoded as JSON once. Pure.

Rule 1: a message of a history is encoded once, when a message of another role follows it. A request is put together
from these bytes, so its cost hardly grows with the conversation.
Rule 2: consecutive texts of one role are merged, since some chat templates require alternating turns. Calls and their
results stay separate.
Rule 3: a message with images stays an object, since images are loaded for each request. The vision policy of a run
limits their number. A message with opaque fields does too, since only one model gets them (`models.wire`).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from services.planner.conversation import compaction

Message = dict[str, Any]
Piece = bytes | Message
"""The JSON of some messages, separated by commas; or one message."""
BYTES_PER_TOKEN = 4
TOKENS_PER_IMAGE = 1_000


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of one request, in order. `encoded_tokens`: estimated, of those pieces that are bytes."""

    pieces: tuple[Piece, ...]
    encoded_tokens: int = 0

    @staticmethod
    def of(messages: Iterable[Message]) -> "Messages":
        """Return a request of messages none of which is encoded yet."""
        return Messages(tuple(messages))

    @property
    def tokens(self) -> int:
        """Estimate the tokens of all messages."""
        return self.encoded_tokens + sum(_tokens_of(piece) for piece in self.pieces if not isinstance(piece, bytes))

    def objects(self) -> list[Message]:
        """Decode the messages, which takes 1 ms per MB or less."""
        return decoded(self.pieces)


class EncodedHistory:
    """The messages of a run's history, as bytes. The newest ones, all of one role, are still objects.

    Attributes:
        messages: how many were added.
        characters: their length, as `compaction.length` measures it.
    """

    def __init__(self) -> None:
        self._encoded: list[bytearray | Message] = []
        self._encoded_tokens = 0
        self._newest: list[Message] = []
        self.messages = self.characters = 0

    def add(self, message: Message) -> None:
        """Add the next message."""
        if self._newest and not _can_merge(self._newest[-1], message):
            self._encode_newest()
        self._newest.append(message)
        self.messages += 1
        self.characters += compaction.length(message)

    def objects(self) -> list[Message]:
        """Decode all messages, for a compaction."""
        return decoded([*self._pieces(), *self._newest])

    def request(self, system: Message, notes: Iterable[Message]) -> Messages:
        """Return the messages of a request. `notes`: those of this turn, which come last."""
        return Messages((system, *self._pieces(), *self._newest, *notes), self._encoded_tokens)

    def _pieces(self) -> Iterator[Piece]:
        for piece in self._encoded:
            yield bytes(piece) if isinstance(piece, bytearray) else piece

    def _encode_newest(self) -> None:
        if any(isinstance(message.get("content"), list) or compaction.OPAQUE in message for message in self._newest):
            self._encoded += self._newest
        else:
            self._encoded_tokens += sum(map(_tokens_of, self._newest))
            text = b",".join(map(encoded, merged(self._newest)))
            last = self._encoded[-1] if self._encoded else None
            if isinstance(last, bytearray):
                last += b","
                last += text
            else:
                self._encoded.append(bytearray(text))
        self._newest = []


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Merge neighbouring texts of one role. Bytes are left as they are: their messages were merged before."""
    turns: list[Piece] = []
    for piece in pieces:
        last = turns[-1] if turns else b""
        if isinstance(last, dict) and isinstance(piece, dict) and _can_merge(last, piece):
            turns[-1] = {**last, "content": _joined(last["content"], piece["content"])}
        else:
            turns.append(piece)
    return turns


def _can_merge(first: Message, second: Message) -> bool:
    is_text = all("tool_calls" not in message and message["role"] != "tool" for message in (first, second))
    return first["role"] == second["role"] and is_text


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    parts = text_parts(first)
    if parts and parts[-1]["type"] == "text":
        parts[-1] = {**parts[-1], "text": f"{parts[-1]['text']}\n\n"}
    return parts + text_parts(second)


def text_parts(content: Any) -> list[dict[str, Any]]:
    """Return a content as parts."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def encoded(piece: Piece) -> bytes:
    """Encode a piece. A lone surrogate, which UTF-8 does not have, is escaped."""
    if isinstance(piece, bytes):
        return piece
    try:
        return orjson.dumps(piece)
    except TypeError:
        return json.dumps(piece).encode()


def decoded(pieces: Iterable[Piece]) -> list[Message]:
    """Return the messages of the pieces, one by one."""
    messages: list[Message] = []
    for piece in pieces:
        if isinstance(piece, dict):
            messages.append(piece)
        else:
            text = b"[%b]" % piece
            try:
                messages += orjson.loads(text)
            except orjson.JSONDecodeError:  # A lone surrogate.
                messages += json.loads(text)
    return messages


def compact(value: Any) -> str:
    """Render any value as JSON. Types without a JSON form become text; integers keep all digits. Never raises."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # An integer beyond 64 bits, or a lone surrogate.
        return json.dumps(value, default=str, separators=(",", ":"))


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def _tokens_of(message: Message) -> int:
    return sum(
        text_tokens(part["text"]) if part.get("type") == "text" else TOKENS_PER_IMAGE
        for part in text_parts(message.get("content"))
    )
