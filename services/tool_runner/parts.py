"""Put together what a tool ended its call with: a result in one piece or in parts, or a failure in its own words."""

import orjson
from pydantic import ValidationError

from contracts.tools import ToolFailure

from .errors import ResultTooLarge
from .exchange import Heard

_MAX_REASON = 2000


class Parts:
    """The parts of one call's result, apart for each question: two copies that answer do not mix."""

    def __init__(self, tool: str, max_bytes: int) -> None:
        self._tool = tool
        self._max_bytes = max_bytes
        self._parts: dict[str, list[bytes]] = {}
        self._bytes: dict[str, int] = {}

    def add(self, heard: Heard) -> None:
        """Keep a part. Raises ResultTooLarge."""
        size = self._bytes[heard.key] = self._bytes.get(heard.key, 0) + len(heard.data)
        self._check(size)
        self._parts.setdefault(heard.key, []).append(heard.data)

    def whole(self, heard: Heard) -> bytes | None:
        """Return the result that `heard` ends, or None when parts of it are missing. Raises ResultTooLarge."""
        if heard.parts is None:
            self._check(len(heard.data))
            return heard.data
        self._bytes.pop(heard.key, None)
        parts = self._parts.pop(heard.key, [])
        return b"".join(parts) if str(len(parts)) == heard.parts.strip() else None

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
