"""The entry point of the command line: whatever happens, it ends without a traceback.

Only the standard library is imported before `main` has arranged what Ctrl-C does: it may come in the middle of an
import.
"""

import os
import signal
import sys

_EXIT_FAILED, _EXIT_INTERRUPTED = 1, 130


def main() -> None:
    """Run a command of the `runwire` script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # `printing.end` has it raise KeyboardInterrupt again
    # No character fails that a terminal cannot show, and nothing that is printed where `>&-` closed a stream.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123, open until the end; pathlib is not needed
    sys.stderr = sys.stderr or sys.stdout
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        try:
            from runwire.cli.app import app  # noqa: PLC0415, see above

            app(prog_name="runwire")
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
        from runwire.cli.printing import print_error  # noqa: PLC0415, see above

        text = (
            f"an error that no command expects, {type(error).__name__}: {error}. Please report it, with what "
            "RUNWIRE_LOG_LEVEL=debug prints instead of this line"
        )
        if isinstance(error, OSError) and error.strerror:
            text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        print_error(text)
        raise SystemExit(_EXIT_FAILED) from None
