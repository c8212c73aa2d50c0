"""Cuts texts of a session to a number of bytes."""

from collections.abc import Mapping

CUT_MARK = " […]"


def byte_size(text: str) -> int:
    """Return the size of a text as UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def cut(text: str, limit: int) -> str:
    """Return at most `limit` bytes of a text, with a mark where it was cut."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text
    room = limit - len(CUT_MARK.encode())
    return data[:room].decode("utf-8", "ignore") + CUT_MARK if room > 0 else ""


def cut_together(texts: Mapping[str, str], limit: int) -> dict[str, str]:
    """Cut the longest texts to the same size, so that all together have at most `limit` bytes."""
    sizes = sorted(byte_size(text) for text in texts.values())
    left = limit
    for position, size in enumerate(sizes):
        share = left // (len(sizes) - position)
        if size > share:
            return {key: cut(text, share) for key, text in texts.items()}
        left -= size
    return dict(texts)
