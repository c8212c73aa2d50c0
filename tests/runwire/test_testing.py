"""The context of a test without a server has the checks of a server."""

import pytest

from contracts.wire.base import MAX_INLINE_BYTES
from runwire.testing import RecordingContext


def test_a_content_has_a_limit_where_it_is_given() -> None:
    """Of bytes, and the author learns it in the test."""
    context = RecordingContext()
    context.set_content("x" * MAX_INLINE_BYTES)
    with pytest.raises(ValueError, match=f"the content has {MAX_INLINE_BYTES + 2} bytes; the limit is"):
        context.set_content("ü" * (MAX_INLINE_BYTES // 2 + 1))
    with pytest.raises(ValueError, match="surrogates"):
        context.set_content("\ud800")
    assert context.content == "x" * MAX_INLINE_BYTES
