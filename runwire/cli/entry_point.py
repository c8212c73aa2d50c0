"""The entry point of the command line: whatever happens, it ends without a traceback.

Rule 1: what runs for long, the launcher and tools that are served, is started without the libraries of the commands.
Rule 2: nothing is imported before `main` has arranged what Ctrl-C does: it may come in the middle of an import.
"""

import os
import signal
import sys

LAUNCH = ("up", "--parsed")
"""Followed by the options of `runwire up` as JSON."""
SERVE = ("serve", "--parsed")
"""Followed by the arguments of `serve_files` as JSON."""


_EXIT_FAILED, _EXIT_INTERRUPTED = 1, 130


def main() -> None:
    """Run a command of the `runwire` script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # `exit_code` has it raise KeyboardInterrupt again
    try:
        _prepare_streams()
        try:
            _run(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `runwire runs ls | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(_EXIT_FAILED) from None
    except KeyboardInterrupt:
        raise SystemExit(_EXIT_INTERRUPTED) from None
    except Exception as error:
        if os.environ.get("RUNWIRE_LOG_LEVEL", "").lower() == "debug":
            raise
        from runwire.cli.exit_codes import print_error  # noqa: PLC0415, see rule 2

        print_error(_sentence_of(error))
        raise SystemExit(_EXIT_FAILED) from None


def _prepare_streams() -> None:
    """Have no character fail that a terminal cannot show, and nothing that is printed where `>&-` closed a stream."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123, open until the end; pathlib is not needed
    sys.stderr = sys.stderr or sys.stdout
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _sentence_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return (
        f"an error that no command expects, {type(error).__name__}: {error}. Please report it, with what "
        "RUNWIRE_LOG_LEVEL=debug prints instead of this line"
    )


def _run(arguments: list[str]) -> None:
    if tuple(arguments[:-1]) == LAUNCH:
        from contracts.wire.optional_imports import import_without  # noqa: PLC0415, see rule 2

        import_without("asyncio", "ssl")  # 3 MB; all it connects to is on this machine, without TLS
        from runwire.cli.launcher import main as launch  # noqa: PLC0415, each process has what it needs

        raise SystemExit(launch(arguments[-1]))
    import json  # noqa: PLC0415, see rule 2

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
    from contracts.wire.optional_imports import import_without  # noqa: PLC0415, see rule 2
    from runwire.credentials.lookup import find_login  # noqa: PLC0415
    from runwire.errors import InvalidCredential  # noqa: PLC0415

    try:
        by_websocket = find_login(url, credentials).url.startswith("ws")
    except InvalidCredential as error:
        raise SystemExit(str(error)) from None
    if not by_websocket:
        import_without("nats", "aiohttp")  # nats-py needs it for WebSockets alone: 90 ms and 8 MB
    from runwire import serving  # noqa: PLC0415, the other commands need no NATS client

    health_file = health_file or os.environ.get("RUNWIRE_HEALTH_FILE")
    serving.main(files, url, credentials=credentials, health_file=health_file)
