"""What runs for long is started without the libraries of the command line: the launcher, and tools that are served."""

import json
import os
import sys
from pathlib import Path

from contracts.optional_imports import import_without
from runwire.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, print_error
from runwire.credentials.lookup import find_login
from runwire.errors import InvalidCredential

LAUNCH = ("up", "--parsed")
"""Followed by the options of `runwire up` as JSON."""
SERVE = ("serve", "--parsed")
"""Followed by the arguments of `serve_files` as JSON."""


def main() -> None:
    """The entry point of the `runwire` script: run the command, and end with one sentence instead of a traceback."""
    try:
        sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115, closed by the shell: `>&-`
        sys.stderr = sys.stderr or sys.stdout
        try:
            _run(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `runwire runs ls | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(EXIT_FAILED) from None
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except Exception as error:
        if os.environ.get("RUNWIRE_LOG_LEVEL", "").lower() == "debug":
            raise
        print_error(_sentence_of(error))
        raise SystemExit(EXIT_FAILED) from None


def _sentence_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return (
        f"an error that no command expects, {type(error).__name__}: {error}. Please report it, with what "
        "RUNWIRE_LOG_LEVEL=debug prints instead of this line"
    )


def _run(arguments: list[str]) -> None:
    if tuple(arguments[:-1]) == LAUNCH:
        import_without("asyncio", "ssl")  # 3 MB; all it connects to is on this machine, without TLS
        from runwire.cli.launcher import main as launch  # noqa: PLC0415, each process has what it needs

        raise SystemExit(launch(arguments[-1]))
    is_parsed = tuple(arguments[:-1]) == SERVE
    if is_parsed or (arguments[:1] == ["serve"] and arguments[1:] and not any(one[:1] == "-" for one in arguments)):
        serve_files(**json.loads(arguments[-1])) if is_parsed else serve_files(arguments[1:])
        return
    from runwire.cli.app import app  # noqa: PLC0415

    app(prog_name="runwire")


def serve_files(
    files: list[str], url: str | None = None, credentials: str | None = None, health_file: str | None = None
) -> None:
    """Serve the tools of Python files over NATS, until SIGTERM or SIGINT."""
    try:
        by_websocket = find_login(url, credentials).url.startswith("ws")
    except InvalidCredential as error:
        raise SystemExit(str(error)) from None
    if not by_websocket:
        import_without("nats", "aiohttp")  # nats-py needs it for WebSockets alone: 90 ms and 8 MB
    from runwire import serving  # noqa: PLC0415, the other commands need no NATS client

    health_file = health_file or os.environ.get("RUNWIRE_HEALTH_FILE")
    serving.main(files, url, credentials=credentials, health_file=health_file)
