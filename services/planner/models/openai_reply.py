"""Reads a chat completion of an OpenAI-compatible server, in whatever frame it comes, and its errors. No I/O.

What servers send, and what is read of it:

- Server-sent events, with or without empty lines between them; the JSON of one may have several `data:` lines.
- A completion that is sent whole, of any content type, on one line or many; a list of chunks; one chunk a line.
- Of a whole message after its deltas, only what no delta has brought.
- JSON with a byte order mark, NaN, halves of characters, or bytes that are no UTF-8.
- An error in any of these places (`error_of`).

The meaning of an error is found in its status, code and text. The text is searched, and never copied (see `errors`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from contracts.runs.payload import Usage
from services.planner.models import errors
from services.planner.models.errors import MAX_BEGINNING_BYTES, REPETITIVE, Meaning, ModelFailed, failure
from services.planner.models.gathering import Gathered, Piece
from services.planner.models.types import Delta
from services.planner.models.wire import OPAQUE_FIELDS
from services.runtime import exact_json

_REFUSED_CODES = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
_REFUSED_TEXTS = ("content management policy", "content policy", "content_policy", "safety system", "moderation")
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_UNCLEAR_STATUSES = frozenset({None, 400, 413, 422, 500})
_WRAPPERS = ("error", "errors", "base_resp")
"""Fields around an error: of most servers; of Cloudflare; of MiniMax."""
_NAMES = {
    "message": ("message", "error_msg", "errorMessage", "error_message", "status_msg", "msg", "detail"),
    "code": ("code", "error_code", "errorCode", "status_code"),
}
"""What is called how: by most servers; by Baidu; by gateways; by MiniMax; by Zhipu; by FastAPI."""
_GOOD_CODES = (None, 0, 200, "0", "200")
_FIRST_ERROR_STATUS, _LAST_ERROR_STATUS = 400, 599


def failure_of(
    model: str, status: int | None, headers: Mapping[str, str], error: Mapping[str, Any], *, after_output: bool = False
) -> ModelFailed:
    """Return the failure of an error body, or of an error inside a stream (then `status` may be None)."""
    code = _identifier(error.get("code")) or _identifier(error.get("type"))
    for name in ("status", "status_code", "code"):
        value = error.get(name)
        number = int(value) if isinstance(value, int | str) and str(value).isdecimal() else 0
        if status is None and _FIRST_ERROR_STATUS <= number <= _LAST_ERROR_STATUS:
            status = number
    text = str(error.get("message", ""))[: errors.MAX_SEARCHED_CHARACTERS].lower()
    label = ", ".join(str(part) for part in (status, code) if part) or "an error in its stream"
    worded = f"{error.get('code')} {error.get('type')}: {text}"
    meaning = _meaning(status, code, text, is_too_long=errors.is_too_long(str(error.get("code")), worded))
    failed = errors.failure(meaning, model, label, status=status, headers=headers, after_output=after_output)
    failed.said = f"{text} {error.get('param') or ''}".lower()
    return failed


def error_in(body: bytes) -> dict[str, Any]:
    """Return the error of a body: an object with `message` and, maybe, `code` and `type`."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"message": body[: errors.MAX_SEARCHED_CHARACTERS * 4].decode(errors="replace")}
    return _error_in(given[0] if isinstance(given, list) and given else given)


def error_of(chunk: dict[str, Any], *, is_chunk: bool, event: bytes) -> tuple[dict[str, Any] | None, bool]:
    """Return the error that a server sent with status 200, or None, and whether it is certain.

    `is_chunk`: it has a choice. `event`: the name of the event. A message without a code may tell the progress.
    """
    found = _error_in(chunk)
    if chunk.get("error") or event == b"error" or chunk.get("object") == "error":
        return found, True
    is_error = not is_chunk and isinstance(found["message"], str | list) and bool(found["message"])
    return found if is_error else None, is_error and found.get("code") not in _GOOD_CODES


def _error_in(given: Any) -> dict[str, Any]:
    """Return the error of a value, whatever its fields are called."""
    if not isinstance(given, dict):
        return {"message": str(given)}
    for name in _WRAPPERS:
        inner = given.get(name)
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict):
            given = {**given, **inner}
        elif inner:
            given = {**given, "message": str(inner)}
    found = {"message": ""} | {
        name: given[name] for name in ("type", "status", "status_code", "param") if name in given
    }
    for kind, names in _NAMES.items():
        found |= next(({kind: given[name]} for name in names if given.get(name)), {})
    return found


def _meaning(status: int | None, code: str, text: str, *, is_too_long: bool) -> Meaning:
    """Read code and text where the status leaves the meaning open."""
    if code in _QUOTA_CODES:
        return errors.CREDENTIALS_REFUSED
    if status in _UNCLEAR_STATUSES:
        if is_too_long:
            return errors.TOO_LONG
        if code in _REFUSED_CODES or any(phrase in text for phrase in _REFUSED_TEXTS):
            return errors.CONTENT_REFUSED
    return errors.meaning_of_status(status)


def _identifier(value: Any) -> str:
    return value if isinstance(value, str) and errors.is_identifier(value) else ""


BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_REPETITIONS = 2000
"""Equal pieces of text in a row from which a reply counts as an endless loop; a line of dashes has fewer."""
MIN_LOOPING_CHARACTERS = 3
"""Length of a piece that can count as a loop. Shorter repeated pieces are blanks and lines of tables."""
_OTHER_FIELDS = (b"event:", b"id:", b"retry:")
"""Fields of a server-sent event beside its data."""
_OPENING = (b"{", b"[")
_CALL = b"_call"
"""A line without it has no arguments, whose numbers are read exactly."""
_ENDS = frozenset({b"[DONE]", b'"[DONE]"'})
_MAX_DIGITS = 19
"""Of an index that is sent as text."""


class ReplyReader(Gathered):
    """Gathers the chunks of one reply."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._usage: dict[str, Any] | None = None
        self._last_text = ""
        self._repetitions = 0
        self._event = b""
        """The name of the event that has begun."""
        self._open: list[bytes] = []
        """Lines of JSON that has begun."""
        self._is_data = False
        """Whether these were the data of an event, which an empty line ends."""
        self.finish_reason: str | None = None
        self.ended = False
        """Whether `[DONE]` has come, or a completion that was sent whole."""
        self.error: dict[str, Any] | None = None
        """An error that the server sent instead of a chunk."""
        self._maybe_error: dict[str, Any] | None = None
        self.beginning = b""
        """The first bytes of what is no chunk, to say what a server sent instead of a completion."""

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

    def read_line(self, line: bytes) -> Sequence[Delta]:
        """Read one line of the reply. Raises ModelFailed if it is malformed. What follows the end is ignored."""
        if self.ended:
            return ()
        if not self._open and line.startswith(b"data: {") and _CALL not in line:  # Nearly all lines are so.
            data = line[6:]
            try:
                chunk = orjson.loads(data)
            except orjson.JSONDecodeError:
                chunk = None
            if chunk is not None:
                return self._read_chunk(data, chunk)
        line = line.removeprefix(BYTE_ORDER_MARK)
        is_data = line.startswith(b"data:")
        data = (line[5:] if is_data else line).strip()
        if not data and not is_data:  # It ends an event, and nothing in JSON that is sent without one.
            deltas = self._read_open() if self._open and self._is_data else ()
            self._event = b""
            return deltas
        if data in _ENDS:
            deltas = self._read_open()
            self.ended = True
            return deltas
        if is_data:
            return self._read_data(line, data, is_data=True) if data else ()
        if line.startswith(b"event:"):
            self._event = line[6:].strip()
        if line.startswith(_OTHER_FIELDS):
            return ()
        return self._read_data(line, data, is_data=False)

    def _read_data(self, line: bytes, data: bytes, *, is_data: bool) -> Sequence[Delta]:
        deltas: Sequence[Delta] = ()
        if self._open and is_data and not self._is_data:  # What came before was no event.
            deltas = self._read_open()
        chunks = None if self._open else _chunks_in(data)
        if chunks is not None:
            return [*deltas, *self._read_chunks(data, chunks)]
        if self._open or is_data or data.startswith(_OPENING):
            self._is_data = is_data or (bool(self._open) and self._is_data)
            self._open.append(data)
        else:
            self._keep(line)
        return deltas

    def end(self) -> Iterator[Delta]:
        """Read what is still open, and yield what was held back. Raises ModelFailed."""
        if not self.ended and self.error is None:
            yield from self._read_open()
        yield from super().end()
        if not self.begun:
            self.error = self.error or self._maybe_error

    def _read_open(self) -> Sequence[Delta]:
        data, self._open = b"\n".join(self._open), []
        chunks = _chunks_in(data) if data else []
        if chunks is None and self._event == b"error":
            chunks = [{"message": data.decode(errors="replace")}]
        if chunks is not None:
            return self._read_chunks(data, chunks)
        if self._is_data:
            raise ModelFailed("model_failed", f"{self._model} sent a malformed stream", retryable=True)
        self._keep(data)
        return ()

    def _keep(self, data: bytes) -> None:
        self.beginning += data[: MAX_BEGINNING_BYTES - len(self.beginning)]

    def _read_chunks(self, data: bytes, chunks: list[dict[str, Any]]) -> Sequence[Delta]:
        return [delta for chunk in chunks for delta in self._read_chunk(data, chunk)]

    def _read_chunk(self, data: bytes, chunk: dict[str, Any]) -> Sequence[Delta]:
        if self.error is not None or self.ended:
            return ()
        usage = chunk.get("usage") or ("x_groq" in chunk and _object(chunk["x_groq"]).get("usage"))
        if isinstance(usage, dict):
            self._usage = usage
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        if not choice or choice.get("error") or chunk.get("error") or self._event == b"error":
            given = choice if choice.get("error") else chunk
            error, is_certain = error_of(given, is_chunk=bool(choice), event=self._event)
            if is_certain:
                self.error = error
                return ()
            self._maybe_error = self._maybe_error or error
        if not choice:
            if not isinstance(choices, list) and not self._usage:
                self._keep(data)
            return ()
        finish = choice.get("finish_reason") or choice.get("stop_reason")
        finish = finish.get("type") if isinstance(finish, dict) else finish  # SGLang
        is_last = isinstance(finish, str) and bool(finish)
        if is_last:
            self.finish_reason = finish
        deltas = self._read_delta(delta, is_last=is_last) if isinstance(delta := choice.get("delta"), dict) else ()
        if "message" in choice and (message := _object(choice["message"])):
            self.ended = not self.begun and not choice.get("delta")
            deltas = [*deltas, *self._read_delta(self._not_yet_in(message), is_last=True)]
        return deltas

    def _not_yet_in(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a whole message of which no delta has brought anything."""
        come = {
            "content": self._text,
            "reasoning": self._reasoning,
            "refusal": self._refusal,
            "tool_calls": self._calls,
        }
        aliases = {"reasoning_content": "reasoning", "function_call": "tool_calls"}
        return {name: value for name, value in message.items() if not come.get(aliases.get(name, name))}

    def _read_delta(self, delta: dict[str, Any], *, is_last: bool) -> Sequence[Delta]:
        text = delta.get("content")
        if len(delta) == 1 and isinstance(text, str):  # Nearly all are so.
            self._check_repetition(text)
            return self._add(text, "", is_last=is_last)
        if not OPAQUE_FIELDS.isdisjoint(delta):
            self.opaque.take(delta)
        text, thought = _texts(text)
        # vLLM and DeepSeek say `reasoning_content`, OpenRouter, Groq and Ollama `reasoning`.
        thought = thought or _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        if refusal := _text(delta.get("refusal")):
            self._refusal.add(refusal)
        self._check_repetition(text)
        deltas = self._add(text, thought, is_last=is_last)
        calls = delta.get("tool_calls")
        # The old form of a call has no list around it, and no number.
        calls = calls or [{"index": 0, "function": delta.get("function_call")}] if delta.get("function_call") else calls
        if isinstance(calls, dict):  # One call without a list, or by number, as PHP writes lists.
            calls = [calls] if "function" in calls else [*calls.values()]
        for piece in calls if isinstance(calls, list) else ():
            if isinstance(piece, dict):
                deltas += self._add_call(_piece_of(piece))
        return deltas

    def _check_repetition(self, text: str) -> None:
        if not text:
            return
        if self._last_text != text or len(text) < MIN_LOOPING_CHARACTERS:
            self._last_text, self._repetitions = text, 0
            return
        self._repetitions += 1
        if self._repetitions >= MAX_REPETITIONS:
            raise failure(REPETITIVE, self._model)


def _piece_of(piece: dict[str, Any]) -> Piece:
    function, index = _object(piece.get("function") or piece), piece.get("index")
    arguments = function.get("arguments", function.get("parameters"))
    if isinstance(arguments, dict):  # Ollama and some others send an object.
        with suppress(RecursionError):
            arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    if isinstance(index, str) and index.isdecimal() and len(index) <= _MAX_DIGITS:
        index = int(index)
    if isinstance(index, float) and index.is_integer():
        index = int(index)
    number = index if isinstance(index, int) and not isinstance(index, bool) else None
    return Piece(number, _text(piece.get("id")), _text(function.get("name")), _text(arguments))


def _chunks_in(data: bytes) -> list[dict[str, Any]] | None:
    """Return the object, or the list of objects, that the JSON is; None where it is something else."""
    value: Any = None
    try:
        value = exact_json.loads(data)
    except (ValueError, RecursionError):
        if data.startswith(_OPENING):
            with suppress(ValueError, RecursionError):  # This takes halves of characters and NaN.
                value = json.loads(data.decode(errors="replace"))
    if isinstance(value, dict):
        return [value]
    return value if isinstance(value, list) and value and all(isinstance(chunk, dict) for chunk in value) else None


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
