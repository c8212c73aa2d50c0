"""Reads a chat completion of an OpenAI-compatible server: server-sent chunks, or one whole completion. No I/O."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from contracts.runs.payload import Usage
from services.planner.models.errors import MAX_BEGINNING_BYTES, REPETITIVE, ModelFailed, failure
from services.planner.models.types import CallPiece, Delta
from services.planner.models.wire import Gathered
from services.runtime import exact_json

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_CALLS = 128
"""Native tool calls of one reply."""
MAX_REPETITIONS = 2000
"""Equal pieces of text in a row from which a reply counts as an endless loop; a line of dashes has fewer."""
MIN_LOOPING_CHARACTERS = 3
"""Length of a piece that can count as a loop. Shorter repeated pieces are blanks and lines of tables."""


_OTHER_FIELDS = (b":", b"event:", b"id:", b"retry:")
"""Fields of a server-sent event beside its data, and comments."""


class ReplyReader(Gathered):
    """Gathers the chunks of one reply."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self._model = model
        self._usage: dict[str, Any] | None = None
        self._repetitions = 0
        self.finish_reason: str | None = None
        self.ended = False
        """Whether `[DONE]` has come."""
        self.error: dict[str, Any] | None = None
        """An error that the server sent inside the stream."""
        self.beginning = b""
        """The first bytes of what is no event, to say what a server sent instead of a completion."""

    @property
    def usage(self) -> Usage | None:
        """The usage that the provider reported, without its cost; None: it reported none."""
        given = self._usage
        if not given:
            return None
        written, read = _object(given.get("completion_tokens_details")), _object(given.get("prompt_tokens_details"))
        # DeepSeek and some others name the cached tokens beside the details.
        cached = read.get("cached_tokens") or given.get("prompt_cache_hit_tokens") or given.get("cached_tokens")
        return Usage(
            model_calls=1,
            prompt_tokens=_count(given.get("prompt_tokens")),
            completion_tokens=_count(given.get("completion_tokens")),
            reasoning_tokens=_count(written.get("reasoning_tokens") or given.get("reasoning_tokens")),
            cached_tokens=_count(cached),
        )

    def read_line(self, line: bytes) -> Iterator[Delta]:
        """Read one line of the stream. Raises ModelFailed if it is malformed. What follows `[DONE]` is ignored."""
        line = line.removeprefix(BYTE_ORDER_MARK)
        if self.ended:
            return
        if not line.startswith(b"data:"):
            if not line.startswith(_OTHER_FIELDS):
                self._keep(line)
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.ended = True
        elif data:
            yield from self._read_chunk(self._parsed(data))

    def read_whole(self, body: bytes) -> Iterator[Delta]:
        """Read a completion that the server sent whole, although it was asked to stream."""
        yield from self._read_chunk(self._parsed(body))
        self._keep(body)
        self.ended = True

    def _keep(self, data: bytes) -> None:
        self.beginning += data[: MAX_BEGINNING_BYTES - len(self.beginning)]

    def _parsed(self, data: bytes) -> dict[str, Any]:
        chunk = None
        with suppress(ValueError, RecursionError):
            chunk = exact_json.loads(data)
        if not isinstance(chunk, dict):  # Raised outside the handler: the decoder's error holds the text.
            raise ModelFailed("model_failed", f"{self._model} sent a malformed stream", retryable=True)
        return chunk

    def _read_chunk(self, chunk: dict[str, Any]) -> Iterator[Delta]:
        if chunk.get("error"):
            error = chunk["error"]
            self.error = error if isinstance(error, dict) else {"message": str(error)}
            return
        usage = chunk.get("usage") or _object(chunk.get("x_groq")).get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return
        choice = choices[0]
        finish = choice.get("finish_reason")
        self.finish_reason = finish if isinstance(finish, str) and finish else self.finish_reason
        delta = _object(choice.get("delta") or choice.get("message"))
        yield from self._read_delta(delta)

    def _read_delta(self, delta: dict[str, Any]) -> Iterator[Delta]:
        text, thought = _texts(delta.get("content"))
        # vLLM and DeepSeek say `reasoning_content`, OpenRouter, Groq and Ollama `reasoning`.
        thought = thought or _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        if thought:
            self._reasoning.append(thought)
        if text:
            same = bool(self._text) and self._text[-1] == text and len(text) >= MIN_LOOPING_CHARACTERS
            self._repetitions = self._repetitions + 1 if same else 0
            if self._repetitions >= MAX_REPETITIONS:
                raise failure(REPETITIVE, self._model)
            self._text.append(text)
        if text or thought:
            yield Delta(text, thought)
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            if isinstance(piece, dict):
                yield Delta(call=self._read_call(piece))

    def _read_call(self, piece: dict[str, Any]) -> CallPiece:
        function = _object(piece.get("function"))
        name, arguments, call_id = _text(function.get("name")), function.get("arguments"), _text(piece.get("id"))
        # Ollama and some others send the arguments as an object.
        arguments = exact_json.dumps(arguments).decode() if isinstance(arguments, dict) else _text(arguments)
        index = piece.get("index")
        index = index if isinstance(index, int) else len(self._calls)
        read = self._add_call_piece(index, call_id, name, arguments)
        if len(self._calls) > MAX_CALLS:
            raise ModelFailed("model_failed", f"{self._model} sent more than {MAX_CALLS} tool calls in one reply")
        return read


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(content: Any) -> tuple[str, str]:
    """Return text and reasoning of a content, which is a text or a list of parts (Mistral)."""
    if not isinstance(content, list):
        return _text(content), ""
    text, thought = "", ""
    for part in content:
        kind = _object(part)
        if kind.get("type") == "thinking":
            thought += _texts(kind.get("thinking"))[0]
        else:
            text += _text(kind.get("text"))
    return text, thought


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 53 else 0
