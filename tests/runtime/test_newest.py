"""A dictionary of the newest entries."""

from services.runtime.newest import Newest


def test_the_oldest_entry_goes() -> None:
    """An entry that is set again counts as new."""
    known = Newest[str, int](2)
    known["a"], known["b"] = 1, 2
    known["a"] = 3
    known["c"] = 4
    assert list(known.items()) == [("a", 3), ("c", 4)]
