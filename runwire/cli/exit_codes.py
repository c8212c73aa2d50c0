"""How a command ends: its exit code, and the message for people."""

import signal
from collections.abc import Callable
from typing import NoReturn

import typer

from runwire.cli.printing import print_error, print_json, program
from runwire.errors import RunwireError, Unreachable

_UNAUTHORIZED = 401
EXIT_FAILED, EXIT_ERROR, EXIT_INCOMPLETE, EXIT_CANCELLED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 4, 5, 6, 130


def end(work: Callable[[], int], *expected: type[Exception], output: str = "text") -> NoReturn:
    """Run a command to its exit code, and print the error that ended it. `expected`: further errors for people.

    `output`: anything but "text" has the refusal of a gateway on stdout too, as JSON.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = work()
    except Unreachable as error:
        print_error(f"{error}. Start one with `{program()} up`, or give --url")
        _print_problem(error, output)
        code = EXIT_UNREACHABLE
    except RunwireError as error:
        hint = " Give one with --api-key or RUNWIRE_API_KEY" if error.status == _UNAUTHORIZED else ""
        print_error(f"{error}{hint}")
        _print_problem(error, output)
        code = EXIT_UNREACHABLE
    except expected as error:
        print_error(str(error))
        code = EXIT_FAILED
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    raise typer.Exit(code)


def _print_problem(error: RunwireError, output: str) -> None:
    if output != "text":
        fields = {name: getattr(error, name) for name in ("code", "status", "detail", "errors", "run_id")}
        print_json({"error": fields})
