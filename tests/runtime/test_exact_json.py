"""JSON with long integers."""

import orjson
import pytest

from services.runtime import exact_json

LONG = 2**200


@pytest.mark.parametrize("number", [0, -(2**63), 2**64 - 1, 2**64, -LONG, LONG, 0.1234567890123456789, 1e300])
def test_numbers_are_exact(number: float) -> None:
    """Also beside others, and beyond 64 bits."""
    text = exact_json.dumps({"numbers": [1, number]})
    assert exact_json.loads(text) == exact_json.loads_strictly(text) == {"numbers": [1, number]}


@pytest.mark.parametrize("text", ["NaN", "[1, -Infinity]", "1e400", "9" * 5_000, '"\\ud800"', "[1", "", "{'a': 1}"])
def test_what_is_no_json_is_refused(text: str) -> None:
    """Also beside a long integer."""
    for data in (text.encode(), f"[{LONG}, {text}]".encode()):
        with pytest.raises(orjson.JSONDecodeError):
            exact_json.loads_strictly(data)
