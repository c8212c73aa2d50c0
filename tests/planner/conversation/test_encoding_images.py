"""How images count in a conversation."""

from typing import Any

from contracts.artifacts import ImageRef
from services.planner.conversation import encoding
from services.planner.conversation.encoding import TOKENS_PER_IMAGE, Messages


def test_an_image_counts_as_an_image() -> None:
    """Not as its bytes; older results lose theirs when the conversation is shortened, the question keeps its own."""
    ref = ImageRef(artifact_id="0" * 32, mime_type="image/png")
    message: dict[str, Any] = {"role": "user", "content": encoding.with_images("What?", [ref])}
    assert encoding.length(message) == len("What?") + encoding.CHARACTERS_PER_IMAGE
    later: dict[str, Any] = {
        "role": "user",
        "content": [{"type": "text", "text": "See:"}, {"type": "image", "inline": "A" * 40_000, "name": "x"}],
    }
    said: list[dict[str, Any]] = [
        message,
        {"role": "assistant", "content": "a"},
        later,
        {"role": "assistant", "content": "b"},
    ]
    short = encoding.compacted(said, 200)
    assert short[0] == message
    assert short[2]["content"] == f"See:\n{encoding.LEFT_OUT}"
    hydrated = [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40_000}}],
        }
    ]
    assert Messages.of(hydrated).tokens == TOKENS_PER_IMAGE
