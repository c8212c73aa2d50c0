"""The wheel that users install: its one top-level name is `runwire`, so it collides with no package of theirs."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.wheel import build_wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what installing the wheel would bring."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` where the folders of `path` come first."""
    arranged = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}\n{code}"
    return subprocess.run(
        [sys.executable, "-c", arranged],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=path[0],
        check=False,
    )


def test_the_wheel_brings_one_name(installed: Path) -> None:
    """With the contracts and their schemas inside, what `runwire new` copies, typed, and with its licence."""
    assert {path.name.partition("-")[0] for path in installed.iterdir()} == {"runwire"}
    assert (installed / "runwire" / "py.typed").exists()
    assert (installed / "runwire" / "_contracts" / "schemas" / "ToolSpec.json").exists()
    assert (installed / "runwire" / "_sdk" / "go" / "serve.go").exists()
    assert (installed / "runwire" / "_sdk" / "typescript" / "src" / "tools" / "serve.ts").exists()
    assert (installed / "runwire" / "cli" / "templates" / "python" / "Dockerfile.template").exists()
    assert list(installed.glob("*.dist-info/licenses/LICENSE"))


def test_a_tool_needs_pydantic_only(installed: Path, tmp_path: Path) -> None:
    """The libraries of the client, of `runwire serve` and of the command line are loaded when they are used."""
    result = run(
        "import sys, runwire.errors, runwire.events, runwire.testing\n"
        "print(sorted({'httpx', 'nats', 'orjson', 'rich', 'typer'} & sys.modules.keys()))",
        tmp_path,
        installed,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_up_names_what_it_needs(installed: Path, tmp_path: Path) -> None:
    """The wheel holds no services: one sentence names the clone and compose."""
    env = {**os.environ, "PYTHONPATH": str(installed), "RUNWIRE_DATA_DIR": str(tmp_path / "data")}
    up = subprocess.run(
        [sys.executable, "-P", "-m", "runwire", "up"],
        env=env,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (up.returncode, up.stdout, up.stderr.count("\n")) == (1, "", 1), up.stderr
    assert "clone the repository and call `make run` there, or `docker compose up -d --wait`" in up.stderr
    assert not list(tmp_path.iterdir())


def test_it_says_which_extras_there_are(installed: Path) -> None:
    """One per service, so that an image holds only what its service needs."""
    (metadata,) = installed.glob("*.dist-info/METADATA")
    extras = {
        line.removeprefix("Provides-Extra: ")
        for line in metadata.read_text().splitlines()
        if line.startswith("Provides-Extra: ")
    }
    assert {"gateway", "planner", "tool-runner", "artifact-store", "local", "all"} <= extras
    assert not extras & {"client", "cli"}, "the wheel brings both without an extra"
