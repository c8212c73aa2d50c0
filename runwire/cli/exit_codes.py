"""How a command ends: its exit code, and the message for people.

`up` reads its options in one process image and runs in another: so what only one of them needs is imported there.
"""

import shutil
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from runwire.errors import RunwireError, Unreachable

_UNAUTHORIZED = 401
EXIT_FAILED, EXIT_ERROR, EXIT_INCOMPLETE, EXIT_CANCELLED, EXIT_UNREACHABLE, EXIT_INTERRUPTED = 1, 3, 4, 5, 6, 130


def exit_code(work: Coroutine[Any, Any, int]) -> int:
    """Run a command to its exit code, and print the error that ended it."""
    import asyncio  # noqa: PLC0415, see above

    return guarded(lambda: asyncio.run(work))


def guarded(work: Callable[[], int]) -> int:
    """The exit code of a command that runs event loops itself; the error that ended it is printed."""
    from runwire.local import launch  # noqa: PLC0415, see above

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return work()
    except Unreachable as error:
        print_error(f"{error}. Start one with `{program()} up`, or give --url")
        return EXIT_UNREACHABLE
    except RunwireError as error:
        hint = " Give one with --api-key or RUNWIRE_API_KEY" if error.status == _UNAUTHORIZED else ""
        print_error(f"{error}{hint}")
        return EXIT_UNREACHABLE
    except launch.CannotLaunch as error:
        print_error(str(error))
        return EXIT_FAILED
    except (KeyboardInterrupt, launch.Stopped):
        return EXIT_INTERRUPTED


def print_error(text: str) -> None:
    """Print an error for people."""
    from rich.console import Console  # noqa: PLC0415, see above
    from rich.markup import escape  # noqa: PLC0415

    from runwire.cli.common import visible  # noqa: PLC0415, it needs this module

    Console(stderr=True).print(f"[red]runwire: [/red]{escape(visible(text))}", highlight=False, soft_wrap=True)


def program() -> str:
    """How this program was called, so that people can repeat it: it need not be on the path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m runwire"
    on_path = shutil.which("runwire")
    return "runwire" if on_path and called.resolve() == Path(on_path).resolve() else str(called)
