"""Run an MCP server as a group of processes that does not outlive this tool runner: `python guard.py FD COMMAND…`.

Launchers such as npx start the server as a child of theirs and leave it behind. This process leads the group. When the
command ends, or the other end of the socket FD is closed, as by any death of the tool runner, the whole group is ended:
asked first, then killed, this process with it. How the command ended is said over FD. It imports nothing of ours, so it
costs little.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

GRACE_S = 1.0
"""After standard input was closed, and again after SIGTERM."""


def main(lifeline: int, command: list[str]) -> None:
    """Return only if the command cannot be started."""
    os.set_inheritable(lifeline, False)  # noqa: FBT003, it takes no name

    def tell(text: str) -> None:
        with suppress(OSError):
            os.write(lifeline, text.encode(errors="replace"))

    try:
        child = subprocess.Popen(command)  # noqa: S603, the operator's own
    except (OSError, ValueError) as error:
        tell(f"its command cannot be started: {getattr(error, 'strerror', None) or error}")
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    for first, end in ((0, 2), (3, lifeline), (lifeline + 1, 1 << 12)):  # Ends of pipes that the command alone has.
        os.closerange(first, end)

    def end_with_the_tool_runner() -> None:
        while os.read(lifeline, 1):
            pass
        for number in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + GRACE_S
            while child.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            os.killpg(0, number)

    threading.Thread(target=end_with_the_tool_runner, daemon=True).start()
    code = child.wait()
    tell(f"it ended with the exit code {code}" if code >= 0 else f"it was ended by the signal {-code}")
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
