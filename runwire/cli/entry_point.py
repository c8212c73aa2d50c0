"""What runs for long is started without the libraries of the command line: the launcher, and tools that are served."""

import os
import sys

from contracts.optional_imports import import_without

LAUNCH = ("up", "--parsed")
"""Followed by the options of `runwire up` as JSON."""

_EXIT_INTERRUPTED = 130


def main() -> None:
    """The entry point of the `runwire` script."""
    arguments = sys.argv[1:]
    if tuple(arguments[:-1]) == LAUNCH:
        import_without("asyncio", "ssl")  # 3 MB; all it connects to is on this machine, without TLS
        from runwire.cli.launcher import main as launch  # noqa: PLC0415, each process has what it needs

        raise SystemExit(launch(arguments[-1]))
    if arguments[:1] == ["serve"] and arguments[1:] and not any(word.startswith("-") for word in arguments):
        try:
            serve_files(arguments[1:], os.environ.get("RUNWIRE_NATS_URL"))
        except KeyboardInterrupt:  # before it waits for signals
            raise SystemExit(_EXIT_INTERRUPTED) from None
        return
    from runwire.cli.app import app  # noqa: PLC0415

    app()


def serve_files(files: list[str], nats_url: str | None) -> None:
    """Serve the tools of Python files over NATS, until SIGTERM or SIGINT."""
    if not (nats_url or "").startswith("ws"):
        import_without("nats", "aiohttp")  # nats-py needs it for WebSockets alone: 90 ms and 8 MB
    from runwire import serving  # noqa: PLC0415, the other commands need no NATS client

    serving.main(files, nats_url or None)
