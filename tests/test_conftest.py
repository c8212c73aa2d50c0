"""What a session does when one of its workers dies, and which cases the sessions of `make chaos` share out."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT

CONFTEST = """
import pytest
from tests.conftest import pytest_collection_finish, pytest_xdist_make_scheduler

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.name))
"""
PASSES = "def test_passes(): pass\n"
DIES = "import os\ndef test_dies(): os._exit(1)\n"
AFTER = "def test_after(): pass\n"


def test_the_others_go_on(tmp_path: Path) -> None:
    """Each test runs once, the session ends, and those that killed their worker are named as pytest knows them.

    One dies with the last test of its group, one with the first.
    """
    groups = {"test_a.py": PASSES, "test_b.py": PASSES + DIES, "test_c.py": DIES + AFTER}
    texts = {"conftest.py": CONFTEST, "pytest.ini": "[pytest]\n", **groups}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    options = ("-q", "-n", "1", "--dist", "loadgroup", "-p", "no:randomly", "-p", "no:cacheprovider")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert all(f"FAILED {name}::test_dies - " in ended.stdout for name in ("test_b.py", "test_c.py"))
    assert "2 failed, 3 passed" in ended.stdout


def test_shares_are_of_one_whole() -> None:
    """Every case is in one of them, in whatever order each session has its cases."""

    def cases(share: str, seed: int) -> list[str]:
        file = "tests/planner/replies/test_marked_properties.py"
        options = (
            "-q",
            "-n",
            "0",
            "-m",
            "chaos",
            "--collect-only",
            "-p",
            "no:cacheprovider",
            f"--randomly-seed={seed}",
        )
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *options, file],
            cwd=ROOT,
            env={**os.environ, "SHARE": share, "TEST_SEED": "7"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return [line for line in ended.stdout.splitlines() if "::" in line]

    first, second = cases("1/2", 1), cases("2/2", 2)
    assert first
    assert sorted([*first, *second]) == sorted(cases("1/1", 3))
