"""What a session does when one of its workers dies."""

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
