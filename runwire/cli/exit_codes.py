"""How a command ends: its exit code, and the message for people."""

import signal
from collections.abc import Callable
from typing import NoReturn

import typer

from runwire.cli.printing import print_error, program
from runwire.errors import RunwireError, Unreachable

_UNAUTHORIZED = 401
EXIT_FAILED, EXIT_ERROR, EXIT_INCOMPLETE, EXIT_CANCELLED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 4, 5, 6, 130


def end(work: Callable[[], int], *expected: type[Exception]) -> NoReturn:
    """Run a command to its exit code, and print the error that ended it. `expected`: further errors for people."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = work()
    except Unreachable as error:
        print_error(f"{error}. Start one with `{program()} up`, or give --url")
        code = EXIT_UNREACHABLE
    except RunwireError as error:
        hint = " Give one with --api-key or RUNWIRE_API_KEY" if error.status == _UNAUTHORIZED else ""
        print_error(f"{error}{hint}")
        code = EXIT_UNREACHABLE
    except expected as error:
        print_error(str(error))
        code = EXIT_FAILED
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)
