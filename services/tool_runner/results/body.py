"""A tool's result as it arrived: unparsed JSON, in one message or in parts, and the text beside it.

Rule: parts beyond a few megabytes are held in a temporary file, so memory does not grow with results in transit.
"""

import tempfile

from services.tool_runner.calls.events import Content

_MAX_MEMORY_BYTES = 4 << 20


class ResultBody:
    """A result as unparsed JSON. `size`: its bytes. The caller closes it.

    `content`: the tool's text for the model. With one, a result without bytes is text alone.
    """

    def __init__(self, data: bytes = b"", content: Content | None = None) -> None:
        self.size = len(data)
        self.content = content
        self._data = data
        self._file: tempfile.SpooledTemporaryFile[bytes] | None = None

    def add(self, part: bytes) -> None:
        """Append a part."""
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(max_size=_MAX_MEMORY_BYTES)  # noqa: SIM115, see close
        self._file.write(part)
        self.size += len(part)

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
