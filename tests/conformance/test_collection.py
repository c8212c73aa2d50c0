"""How vectors become tests: one each, from any folder, whatever subset of topics it holds."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOOD: dict[str, Any] = {
    "name": "good",
    "input": {"text": '{"next_node": "a"}'},
    "expected": {"action": {"next_node": "a", "args": {}}},
    "why": "",
}
WRONG = {"name": "wrong", "input": {"text": "{}"}, "expected": {"action": {"next_node": "a", "args": {}}}, "why": ""}


def run(folder: Path) -> str:
    """What pytest says about a folder of vectors."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/conformance/test_vectors.py",
        "--vectors",
        str(folder),
        "-v",
        "-rs",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    ).stdout


def write(folder: Path, topic: str, *vectors: object) -> None:
    """A file of vectors."""
    (folder / f"{topic}.json").write_text(json.dumps({"topic": topic, "vectors": vectors}), encoding="utf-8")


def test_a_folder_with_some_topics(tmp_path: Path) -> None:
    """These are run and no others. A vector that is not met fails with a difference; an unknown topic is skipped."""
    write(tmp_path, "action_normalization", GOOD, WRONG)
    write(tmp_path, "astrology", {"name": "x", "input": {}, "expected": {}})
    said = run(tmp_path)
    assert "test_vector[action_normalization::good] PASSED" in said
    assert "test_vector[action_normalization::wrong] FAILED" in said
    assert '+"no_action"' in said
    assert "ignored, no adapter: astrology" in said
    assert "astrology.json is ignored" in said
    assert "1 failed, 1 passed, 1 skipped" in said


@pytest.mark.parametrize("text", ["not json", '{"vectors": 5}'])
def test_a_file_that_holds_no_vectors_is_named(tmp_path: Path, text: str) -> None:
    """It is an error, not an empty topic."""
    (tmp_path / "action_normalization.json").write_text(text, encoding="utf-8")
    assert "action_normalization.json is no file of vectors" in run(tmp_path)
