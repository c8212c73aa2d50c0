"""Put together what a tool ended its call with: a result in one piece or in parts, or a failure in its own words.

Rule: parts beyond a few megabytes wait in a temporary file, so that memory does not grow with the results that are on their way.
"""

import tempfile

import orjson
from pydantic import ValidationError

from contracts.tools import ToolFailure
from services.tool_runner.errors import ResultTooLarge
from services.tool_runner.transports.nats import Heard

_MAX_REASON = 2000
_IN_MEMORY = 4 << 20


class Whole:
    """What a tool answered, JSON still to be read. `size` counts its bytes; whoever has it closes it."""

    def __init__(self, data: bytes = b"") -> None:
        self.size = len(data)
        self.count = 0
        self._data = data
        self._file: tempfile.SpooledTemporaryFile[bytes] | None = None

    def add(self, part: bytes) -> None:
        """Append a part."""
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115, `close` is what its owner calls
        self._file.write(part)
        self.size += len(part)
        self.count += 1

    def read(self) -> bytes:
        """Return all of it."""
        if self._file is None:
            return self._data
        self._file.seek(0)
        return self._file.read()

    def close(self) -> None:
        """Let it go."""
        self._data = b""
        if self._file is not None:
            self._file.close()


class Parts:
    """The parts of one call's result, apart for each question: two copies that answer do not mix."""

    def __init__(self, tool: str, max_bytes: int) -> None:
        self._tool = tool
        self._max_bytes = max_bytes
        self._parts: dict[str, Whole] = {}

    def add(self, heard: Heard) -> None:
        """Keep a part. Raises ResultTooLarge."""
        whole = self._parts.setdefault(heard.key, Whole())
        self._check(whole.size + len(heard.data))
        whole.add(heard.data)

    def whole(self, heard: Heard) -> Whole | None:
        """Return the result that `heard` ends, or None when parts of it are missing. Raises ResultTooLarge."""
        if heard.parts is None:
            self._check(len(heard.data))
            return Whole(heard.data)
        whole = self._parts.pop(heard.key, Whole())
        if str(whole.count) == heard.parts.strip():
            return whole
        whole.close()
        return None

    def close(self) -> None:
        """Let go of what never became whole."""
        for whole in self._parts.values():
            whole.close()

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise ResultTooLarge(f"the result of {self._tool} is above {self._max_bytes} bytes; ask for less, or for a part of it")


def failure_of(heard: Heard) -> ToolFailure:
    """Read a failure, whatever its form: ours, an error of a micro library, or just words."""
    if heard.kind == "refused":
        return ToolFailure(reason=heard.data.decode(errors="replace")[:_MAX_REASON])
    try:
        failure = ToolFailure.model_validate_json(heard.data)
    except ValidationError:
        failure = ToolFailure(reason=_words(heard.data) or "the tool failed and did not say why")
    return failure if len(failure.reason) <= _MAX_REASON else failure.model_copy(update={"reason": failure.reason[:_MAX_REASON] + "…"})


def _words(data: bytes) -> str:
    try:
        return str(orjson.loads(data))
    except ValueError:
        return data.decode(errors="replace")
