"""What was received of a reply so far, whatever its provider's protocol. No I/O."""

from typing import Any

from services.planner.models.types import CallPiece


class Gathered:
    """The received parts of a reply."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}
        """Index of a call in the stream -> its newest position in `_calls`."""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """The native reasoning so far."""
        return "".join(self._reasoning)

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        """Native tool calls, in order; arguments as text."""
        return tuple(
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": "".join(call["arguments"])},
            }
            for call in self._calls
        )

    @property
    def begun(self) -> bool:
        """Whether any delta was passed on."""
        return bool(self._text or self._reasoning or self._calls)

    def _add_call_piece(self, index: int, call_id: str, name: str, arguments: str) -> CallPiece:
        """Add a part of a native tool call. `index`: of the call in the stream."""
        place = self._places.get(index)
        # Some servers give all calls of a reply one index: a name with a new id starts the next call.
        if place is None or (name and call_id and self._calls[place]["id"] not in {"", call_id}):
            place = self._places[index] = len(self._calls)
            self._calls.append({"id": "", "name": "", "arguments": []})
        call = self._calls[place]
        call["id"] = call["id"] or call_id
        name = "" if name == call["name"] else name  # Other servers repeat the name in each chunk.
        call["name"] += name
        call["arguments"].append(arguments)
        return CallPiece(place, name, arguments)
