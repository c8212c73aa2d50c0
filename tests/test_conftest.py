"""What a session does when one of its workers dies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("dying", [PASSES + DIES, DIES + AFTER], ids=["at the end", "at the beginning"])
def test_the_others_go_on(tmp_path: Path, dying: str) -> None:
    """Each test runs once, the session ends, and the one that killed its worker is named as pytest knows it."""
    texts = {"conftest.py": CONFTEST, "pytest.ini": "[pytest]\n", "test_a.py": PASSES, "test_b.py": dying}
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
    assert "FAILED test_b.py::test_dies - " in ended.stdout
    assert "1 failed, 2 passed" in ended.stdout
