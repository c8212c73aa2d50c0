"""Read the final reply of a call: a result in one message or in parts, or a failure in any form.

Rule: parts beyond a few megabytes are held in a temporary file, so memory does not grow with results in transit.
"""

import tempfile

import orjson
from pydantic import ValidationError

from contracts.tools import ToolFailure
from services.tool_runner.errors import ResultTooLarge
from services.tool_runner.transports.nats import CallEvent

_MAX_REASON_CHARACTERS = 2000
_MAX_MEMORY_BYTES = 4 << 20


class ResultBody:
    """A tool's result as unparsed JSON. `size`: its bytes. The caller closes it."""

    def __init__(self, data: bytes = b"") -> None:
        self.size = len(data)
        self.count = 0
        self._data = data
        self._file: tempfile.SpooledTemporaryFile[bytes] | None = None

    def add(self, part: bytes) -> None:
        """Append a part."""
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115, `close` is what its owner calls
        self._file.write(part)
        self.size += len(part)
        self.count += 1

    def read(self) -> bytes:
        """Return all bytes."""
        if self._file is None:
            return self._data
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        """Release the bytes."""
        self._data = b""
        if self._file is not None:
            self._file.close()


class ResultParts:
    """The parts of one call's result, by request, so that replies of two instances do not mix."""

    def __init__(self, tool: str, max_bytes: int) -> None:
        self._tool = tool
        self._max_bytes = max_bytes
        self._parts: dict[str, ResultBody] = {}

    def add(self, event: CallEvent) -> None:
        """Append a part. Raises ResultTooLarge."""
        result = self._parts.setdefault(event.key, ResultBody())
        self._check(result.size + len(event.data))
        result.add(event.data)

    def joined(self, event: CallEvent) -> ResultBody | None:
        """Return the result that `event` completes, or None when parts are missing. Raises ResultTooLarge."""
        if event.parts is None:
            self._check(len(event.data))
            return ResultBody(event.data)
        result = self._parts.pop(event.key, ResultBody())
        if str(result.count) == event.parts.strip():
            return result
        result.close()
        return None

    def close(self) -> None:
        """Close incomplete results."""
        for result in self._parts.values():
            result.close()

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise ResultTooLarge(
                f"the result of {self._tool} is above {self._max_bytes} bytes; ask for less, or for a part of it"
            )


def failure_of(event: CallEvent) -> ToolFailure:
    """Parse a failure in any form: ours, a micro library's error, or plain text."""
    if event.kind == "service_error":
        return ToolFailure(reason=event.data.decode(errors="replace")[:_MAX_REASON_CHARACTERS])
    try:
        failure = ToolFailure.model_validate_json(event.data)
    except ValidationError:
        failure = ToolFailure(reason=_words(event.data) or "the tool failed and did not say why")
    if len(failure.reason) <= _MAX_REASON_CHARACTERS:
        return failure
    return failure.model_copy(update={"reason": failure.reason[:_MAX_REASON_CHARACTERS] + "…"})


def _words(data: bytes) -> str:
    try:
        return str(orjson.loads(data))
    except ValueError:
        return data.decode(errors="replace")
