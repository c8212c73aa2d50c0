"""Workers of images (`services.shared.images.worker`), forked from a process that has them: a start costs 60 ms else.

`outcomes(images)` runs one worker for each image. As a process, it reads the images from its stdin, pickled, and writes
the outcomes to its stdout.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from services.shared.images import worker

_ROOT = Path(__file__).resolve().parents[2]


class Outcome(NamedTuple):
    """How a worker ended: its exit code (negative: by a signal), and what it wrote."""

    code: int
    out: bytes


def outcomes(images: Iterable[tuple[str, bytes]], limits: worker.Limits) -> list[Outcome]:
    """Return what the worker of each image makes of it. `images`: each with its type, as `png`."""
    command = [sys.executable, "-m", "tests.support.image_workers"]
    data = pickle.dumps(([(kind.upper(), image) for kind, image in images], tuple(limits)))
    done = subprocess.run(command, input=data, stdout=subprocess.PIPE, cwd=_ROOT, check=True)
    return [Outcome(*found) for found in pickle.loads(done.stdout)]  # noqa: S301, our own child has written it


def _forked(format_: str, image: bytes, limits: tuple[int, ...]) -> Outcome:
    read, write = os.pipe()
    with tempfile.TemporaryFile() as given:
        given.write(image)
        given.seek(0)
        child = os.fork()
        if child == 0:
            os.dup2(given.fileno(), sys.stdin.fileno())
            os.dup2(write, sys.stdout.fileno())  # No file: a worker may write none.
            sys.argv = ["worker", format_, *map(str, limits)]
            worker.main()
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        out = answer.read()
    return Outcome(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), out)


if __name__ == "__main__":
    given_images, given_limits = pickle.load(sys.stdin.buffer)  # noqa: S301, the test has written it
    found = [tuple(_forked(kind, image, given_limits)) for kind, image in given_images]
    sys.stdout.buffer.write(pickle.dumps(found))
