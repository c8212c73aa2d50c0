"""Cuts texts, so that what holds them stays within its limit."""

from collections.abc import Mapping

from services.shared.redaction import wire_size

CUT_MARK = " […]"


def cut(text: str, limit: int) -> str:
    """Return at most `limit` bytes of a text, with a mark where it was cut."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text
    room = limit - len(CUT_MARK.encode())
    return data[:room].decode("utf-8", "ignore") + CUT_MARK if room > 0 else ""


def json_size(text: str) -> int:
    """Return the size of a text as JSON, without its quotation marks, in bytes."""
    return wire_size(text) - 2


def cut_together(texts: Mapping[str, str], limit: int) -> dict[str, str]:
    """Cut the longest texts to the same size, so that all together have at most `limit` bytes as JSON."""
    sizes = sorted(map(json_size, texts.values()))
    left = limit
    for position, size in enumerate(sizes):
        share = left // (len(sizes) - position)
        if size > share:
            return {key: _cut_as_json(text, share) for key, text in texts.items()}
        left -= size
    return dict(texts)


def _cut_as_json(text: str, limit: int) -> str:
    found, room = text, limit
    while (size := json_size(found)) > limit:
        found = cut(text, room)
        room = min(room - 1, room * limit // size)
    return found
