"""Tokens in conformance vectors that stand for values which are too long, or no JSON, to be written out."""

import base64
from typing import Any

from tests.conformance.compare import assert_same


def decoded(value: Any) -> Any:
    """Return a vector's value with `$fill` (text of x), `$items` (empty objects) and `$base64` (bytes) in place."""
    if isinstance(value, dict):
        if len(value) == 1:
            ((token, argument),) = value.items()
            if token == "$fill":
                return "x" * argument
            if token == "$items":
                return [{} for _ in range(argument)]
            if token == "$base64":
                return base64.b64decode(argument)
        return {key: decoded(item) for key, item in value.items()}
    return [decoded(item) for item in value] if isinstance(value, list) else value


def matches(actual: Any, expected: Any) -> bool:
    """Compare with an expected value in which `"$any"` stands for anything."""
    if expected == "$any":
        return True
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and actual.keys() == expected.keys()
            and all(matches(actual[key], expected[key]) for key in expected)
        )
    if isinstance(expected, list):
        return isinstance(actual, list) and len(actual) == len(expected) and all(map(matches, actual, expected))
    return bool(actual == expected)


def assert_matches(actual: Any, expected: Any, what: str) -> None:
    """Fail with a readable difference unless `matches`."""
    if not matches(actual, expected):
        assert_same(actual, expected, what)
        raise AssertionError(f"{what} differs")
