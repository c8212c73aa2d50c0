"""Logging: structlog events are past-tense keys with fields, one JSON object per line on stderr."""

import logging
import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog

from .settings import BusSettings

_QUIET = (
    "LiteLLM",
    "LiteLLM Router",
    "LiteLLM Proxy",
    "openai",
    "httpx",
    "httpcore",
    "urllib3",
    "faststream",
    "uvicorn.access",
)
"""Loggers that print prompts, image bytes or every request at levels below WARNING.

They stay at WARNING, whatever RUNWIRE_LOG_LEVEL says.
"""


class BestEffortStream:
    """A stream whose write errors are ignored: a full disk for logs must not end the service."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, and ignore errors."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, and ignore errors."""
        with suppress(OSError):
            self._stream.flush()


def configure_logging(service: str, settings: BusSettings) -> None:
    """Send structlog and the standard library's loggers to stderr at the chosen level."""
    level = getattr(logging, settings.log_level.upper())
    renderer = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if settings.log_format == "console"
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", BestEffortStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(
        level=max(level, logging.WARNING), stream=sys.stderr, format="%(name)s: %(message)s", force=True
    )
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
