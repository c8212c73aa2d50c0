"""Programs in other languages: steps of their builds, and what is built once per run for all workers."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.needs import needs_program

ROOT = Path(__file__).parents[2]
#: Seconds; a first build on a busy machine compiles Go's own library too.
BUILD_LIMIT = 280
INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
LEFT_OUT = shutil.ignore_patterns("node_modules", "dist")
NO_NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "ECONNREFUSED", "ENETUNREACH", "dial tcp", "no such host")


def build(command: list[str], folder: Path, limit: float = BUILD_LIMIT) -> None:
    """Run a step of a build, at most `limit` seconds. Without a network it skips on a laptop; everything else fails."""
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=limit, stdin=subprocess.DEVNULL
    )
    if ran.returncode:
        said = (ran.stdout + ran.stderr)[-3_000:]
        if os.environ.get("CI") != "true" and any(sign in said for sign in NO_NETWORK):
            pytest.skip(f"{command[0]} needs the network: {said[-200:]}")
        pytest.fail(f"{' '.join(command)} ended with {ran.returncode}:\n{said}")


@contextlib.contextmanager
def built_once(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """A folder that all workers of this run share, and whether it still has to be filled; the others wait meanwhile."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"built-{name}"
    folder.mkdir(exist_ok=True)
    done = folder / "done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder, not done.exists()
        done.touch()


def built_typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all TypeScript, in which the SDK and the example are built as the example's README says."""
    npm = str(needs_program("npm"))
    with built_once(tmp_path_factory, "typescript") as (folder, to_do):
        if to_do:
            for part in ("contracts/schemas", "examples/typescript", "sdk/typescript", "web"):
                shutil.copytree(ROOT / part, folder / part, ignore=LEFT_OUT)
            readme = (folder / "sdk" / "typescript" / "README.md").read_text(encoding="utf-8")
            (sample,) = re.findall(r"```ts\n(.*?)```", readme, re.DOTALL)
            example = folder / "examples" / "typescript"
            (example / "src" / "count_words.ts").write_text(sample, encoding="utf-8")
            build([npm, *INSTALL], example)
            build([npm, "run", "build"], example)
    return folder
