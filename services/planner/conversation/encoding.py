"""The messages of model requests, each encoded as JSON once. Pure.

Rule 1: a message of a history is encoded once, when a message of another role follows it. A request is put together
from these bytes, so its cost hardly grows with the conversation.
Rule 2: consecutive texts of one role are merged, since some chat templates require alternating turns. Calls and their
results stay separate.
Rule 3: a message with images stays an object, since images are loaded for each request. The vision policy of a run
limits their number. A message with opaque fields does too, since only one model gets them (`models.wire`).
Rule 4: a compaction shortens a conversation, and keeps the facts of each step: the calls, their arguments, their
outcomes. Long lines of older messages lose their middle, and older results lose their images. The question stays
unchanged. So does the newest exchange, unless the provider reported a context overflow. A compaction is recorded
(`compacted`), so that every planner that folds the log renders the same conversation.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from contracts.artifacts import ImageRef
from services.planner.run.state.history import ToolImage

Message = dict[str, Any]
Part = dict[str, Any]
Piece = bytes | Message
"""The JSON of some messages, separated by commas; or one message."""
BYTES_PER_TOKEN = 4
TOKENS_PER_IMAGE = 1_000
IMAGE = "image"
"""Type of a part that refers to an image: `effects.image_loader` replaces it by bytes in each model request. No
provider knows it, so such a part must not leave the planner."""
OPAQUE = "opaque"
"""Key of a message with what its provider wants to see again, which is kept whole. It must not leave the planner under
this name."""
HEAD_SHARE = 0.7
NEWEST_LINE_FACTOR = 10
"""Lines of the newest exchange may be longer than older ones by this factor."""
CUT_MARKER = " …[shortened]… "
CHARACTERS_PER_IMAGE = 4000
"""Length of an image in estimates of a conversation: about a thousand tokens, for any size."""
LEFT_OUT = "[an image of an earlier result is left out]"


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
    """The messages of a run's history, as bytes. The newest ones, all of one role, are still objects."""

    def __init__(self) -> None:
        self._encoded: list[bytearray | Message] = []
        self._encoded_tokens = 0
        self._newest: list[Message] = []
        self.messages = self.characters = 0  # How many were added, and their length, as `length` measures it.

    def add(self, message: Message) -> None:
        """Add the next message."""
        if self._newest and not _can_merge(self._newest[-1], message):
            self._encode_newest()
        self._newest.append(message)
        self.messages += 1
        self.characters += length(message)

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
        if any(isinstance(message.get("content"), list) or OPAQUE in message for message in self._newest):
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


def length(message: Message) -> int:
    """Characters of a message's text, and of the arguments of its calls."""
    content = message.get("content", "")
    parts = [content] if isinstance(content, str) else [part.get("text") for part in content]
    text = sum(CHARACTERS_PER_IMAGE if part is None else len(part) for part in parts)
    opaque = message.get(OPAQUE, {}).get("message", {}).values()
    text += sum(len(value) for value in opaque if isinstance(value, str))
    return text + sum(len(call["function"]["arguments"]) for call in message.get("tool_calls", ()))


def compacted(
    history: list[Message], line_characters: int, *, newest: bool = False, question: int = 0
) -> list[Message]:
    """Return the conversation with the lines of its middle cut to about `line_characters`.

    `newest`: the lines of its newest exchange are cut too, to ten times that. `question`: the number of messages before
    the question, which are past turns. Their lines are cut too.
    """
    decided = [number for number, message in enumerate(history) if message["role"] == "assistant" and number > question]
    begins = max(decided, default=question + 1)
    last = history[begins:]
    if newest:
        last = [_shortened(message, NEWEST_LINE_FACTOR * line_characters) for message in last]
    older = [
        message if number == question else _shortened(message, line_characters)
        for number, message in enumerate(history[:begins])
    ]
    return [*older, *last]


def _shortened(message: Message, limit: int) -> Message:
    if length(message) <= limit:
        return message
    short = dict(message)
    if isinstance(message.get("content"), str):
        short["content"] = _cut_lines(message["content"], limit)
    elif "content" in message:
        short["content"] = "\n".join(_cut_lines(part.get("text", LEFT_OUT), limit) for part in message["content"])
    if "tool_calls" in message:
        short["tool_calls"] = calls = []
        for call in message["tool_calls"]:
            arguments = call["function"]["arguments"]
            if len(arguments) > limit + len(CUT_MARKER):  # They stay JSON, since providers check that.
                arguments = json.dumps({"shortened": middle_cut(arguments, limit)}, ensure_ascii=False)
            calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    return short


def _cut_lines(text: str, limit: int) -> str:
    return "\n".join(middle_cut(line, limit) for line in text.split("\n"))


def middle_cut(line: str, limit: int) -> str:
    """Return about `limit` characters of a line: its beginning, a mark, and its end."""
    if len(line) <= limit + len(CUT_MARKER):
        return line
    head = int(limit * HEAD_SHARE)
    return f"{line[:head]}{CUT_MARKER}{line[-(limit - head) :]}"


def image_part(ref: ImageRef) -> Part:
    """Return the part of an image of the question."""
    part = {"type": IMAGE, "artifact_id": ref.artifact_id, "name": ref.filename or ref.artifact_id}
    return part | ({"detail": ref.detail} if ref.detail else {})


def with_images(text: str, images: Sequence[ImageRef]) -> str | list[Part]:
    """Return the content of a message: plain text if there are no images."""
    return [{"type": "text", "text": text}, *map(image_part, images)] if images else text


def images_messages(images: Iterable[ToolImage]) -> list[Message]:
    """Render images of tools: one user message per tool."""
    parts: dict[str, list[Part]] = {}
    for image in images:
        lead = {"type": "text", "text": f"Images among the results of {image.tool}:"}
        name = f"{image.path} of {image.tool}"
        part: Part = {"type": IMAGE, "inline": image.inline, "name": name}
        if image.inline is None:  # A tool may name any artifact id, so only artifacts of this run are fetched.
            part = {"type": IMAGE, "artifact_id": image.artifact_id, "name": name, "of_run": True}
        parts.setdefault(image.tool, [lead]).append(part)
    return [{"role": "user", "content": content} for content in parts.values()]
