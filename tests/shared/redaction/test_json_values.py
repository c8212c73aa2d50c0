"""Texts cut to a number of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from services.shared.redaction.json_values import CUT_MARK, cut, cut_together, json_size


@given(st.text(), st.integers(0, 40))
def test_a_cut_text_fits_and_says_so(text: str, limit: int) -> None:
    """A text that fits stays as it is."""
    found = cut(text, limit)
    assert len(found.encode()) <= limit
    assert found == text or found.endswith(CUT_MARK) or not found


@given(st.dictionaries(st.text(max_size=2), st.text(max_size=40), max_size=8), st.integers(0, 200))
def test_texts_cut_together_fit_and_the_shortest_stay(texts: dict[str, str], limit: int) -> None:
    """Those that are cut are cut to the same size."""
    found = cut_together(texts, limit)
    assert found.keys() == texts.keys()
    assert sum(json_size(text) for text in found.values()) <= limit
    kept = [json_size(texts[key]) for key in texts if found[key] == texts[key]]
    shortened = [json_size(texts[key]) for key in texts if found[key] != texts[key]]
    assert not kept or not shortened or max(kept) <= min(shortened)
