"""What a type checker knows of `runwire`: `mypy --strict` on users' programs, with the wheel and in the checkout.

`programs/` are correct and say what they expect by `assert_type`. In `mistakes/` each wrong line names the errors that
mypy reports there.
"""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.wheel import ROOT, build_wheel

HERE = Path(__file__).parent
FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$", re.MULTILINE)
EXPECTED = re.compile(r"# mypy: (?P<codes>[a-z, -]+)$")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that holds the wheel; what the wheel depends on comes from the checkout's."""
    folder = tmp_path_factory.mktemp("user")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    wheel = build_wheel(folder)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True, stdin=subprocess.DEVNULL)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder in which the user has a package `contracts` of their own."""
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "__init__.py").write_text('OWNER: str = "the user"\nevents: int = 1\nruns: int = 2\n')
    (tmp_path / "own.py").write_text(
        "import contracts\n\nfrom runwire.events import Done\n\nprint(contracts.OWNER, Done)\n"
    )
    return tmp_path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mypy's cache, shared by all runs."""
    return tmp_path_factory.mktemp("mypy")


def mypy(python: Path, cwd: Path, cache: Path, *paths: Path) -> tuple[int, str]:
    """Run `mypy --strict` as the user of an environment would, without the checkout's configuration."""
    environment = {name: value for name, value in os.environ.items() if name not in {"MYPYPATH", "PYTHONPATH"}}
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--no-color-output"]
    command += ["--python-executable", str(python), "--cache-dir", str(cache), *map(str, paths)]
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def mistakes_found(output: str) -> set[tuple[str, int, str]]:
    """File, line and code of each error that mypy reported."""
    return {(Path(found["file"]).name, int(found["line"]), found["code"]) for found in FOUND.finditer(output)}


def mistakes_expected() -> set[tuple[str, int, str]]:
    """The same, as the comments say."""
    return {
        (file.name, number, code)
        for file in (HERE / "mistakes").glob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (expected := EXPECTED.search(line))
        for code in expected["codes"].split(", ")
    }


@pytest.mark.sample(1)
@pytest.mark.parametrize("installed", [True, False], ids=["wheel", "checkout"])
def test_types_are_known_to_users(
    *, installed: bool, request: pytest.FixtureRequest, tmp_path: Path, cache: Path
) -> None:
    """Correct programs pass, and every mistake is found."""
    python = request.getfixturevalue("user") if installed else Path(sys.executable)
    _, output = mypy(python, tmp_path, cache, HERE / "programs", HERE / "mistakes")
    assert mistakes_found(output) == mistakes_expected(), output
    assert f"(checked {len([*HERE.glob('*/*.py')])} source files)" in output


@pytest.mark.chaos
def test_a_package_named_contracts_changes_no_type(user: Path, beside: Path, cache: Path) -> None:
    """With the wheel, a package of the user's own that bears the name of ours is another package."""
    for program in (HERE / "programs").glob("*.py"):
        (beside / program.name).write_text(program.read_text())
    code, output = mypy(user, beside, cache, beside)
    assert code == 0, output


def test_a_package_named_contracts_changes_nothing_at_run_time(user: Path, beside: Path) -> None:
    """Both are imported by one process, and tools run, are loaded and served."""
    (beside / "tools.py").write_text((HERE / "programs" / "tool_author.py").read_text())
    load = "from runwire.serving.server import load_tools; print(sorted(tool.name for tool in load_tools('tools.py')))"
    found = "the user <class 'runwire._contracts.runs.events.Done'>"
    for arguments, printed in ((["own.py"], found), (["tools.py"], "")):
        ended = subprocess.run([user, *arguments], cwd=beside, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout.strip()) == (0, printed), ended.stderr
    ended = subprocess.run([user, "-c", load], cwd=beside, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "['double', 'sell', 'sell_plainly', 'sum_up']", ended.stderr


def test_the_wheel_is_not_the_checkout(user: Path, tmp_path: Path) -> None:
    """The environment of these tests imports the installed files."""
    code = "import runwire, importlib.util as u; print(runwire.__file__, u.find_spec('contracts'))"
    ended = subprocess.run([user, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    file, contracts = ended.stdout.split()
    assert Path(file).is_relative_to(user.parents[1])
    assert not Path(file).is_relative_to(ROOT)
    assert contracts == "None"
