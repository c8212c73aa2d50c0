"""Which tests need no server."""

import pytest

from tests.unit_tests import is_unit


def test_one_like_this_is_a_unit_test(request: pytest.FixtureRequest) -> None:
    """Fixtures that every test has do not count, else `make unit` would run none."""
    assert is_unit(request.node)
