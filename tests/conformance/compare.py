"""What adapters share: comparing two JSON values so that a failure can be read."""

import difflib
import json
from typing import Any


def assert_same(actual: Any, expected: Any, what: str) -> None:
    """Fail with a difference, line by line, unless both are the same JSON in any key order; `1` and `1.0` differ."""
    have, want = _lines(actual), _lines(expected)
    if have != want:
        diff = "\n".join(difflib.unified_diff(want, have, "expected", "actual", lineterm="", n=8))
        raise AssertionError(f"{what} differs:\n{diff}")


def _lines(value: Any) -> list[str]:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=repr).splitlines()
