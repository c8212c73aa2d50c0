"""Streams the content of a direct response while the model is still writing its plan. Pure.

The first object with a `type` of its own counts. Its `content` is streamed once the type is known to be
`direct_response`; before that it is held. Nothing of a plan of calls is ever streamed.
"""

from contracts.runs.plans import DIRECT_RESPONSE
from services.planner.replies.answer_stream.prose import ObjectFinder
from services.planner.replies.answer_stream.tokens import Token, Tokens
from services.planner.replies.thoughts import unfinished_from


class PlanStream:
    """Reads one reply part by part, and returns the text to stream at once."""

    def __init__(self) -> None:
        self._finder = ObjectFinder()
        self._tokens: Tokens | None = None
        self._field = ""
        self._type: list[str] = []
        self._is_direct: bool | None = None
        """None: the type is not known yet."""
        self._held: list[str] = []
        self._held_mark = ""
        """The end of a part that may begin a mark of a thought."""
        self._shown: list[str] = []
        self._over = False

    @property
    def shown(self) -> str:
        """The text returned so far."""
        return "".join(self._shown)

    def feed(self, text: str) -> str:
        """Read the next part of the reply, and return the text to stream now."""
        before, text = len(self._shown), self._held_mark + text
        cut = unfinished_from(text)
        self._feed(text[:cut])
        self._held_mark = text[cut:] if self._tokens is None else self._feed(text[cut:], in_object=True)
        return "".join(self._shown[before:])

    def _feed(self, text: str, *, in_object: bool = False) -> str:
        """Read a text, or what of it belongs to the object. Return the rest."""
        here = 0
        while here < len(text) and not self._over and not (in_object and self._tokens is None):
            if self._tokens is None:
                here = self._finder.search(text, here)
                self._over = self._finder.lost or (self._finder.found and self._finder.is_amid)
                self._tokens = Tokens(self._on_token) if self._finder.found else None
            else:
                here = self._read(self._tokens, text, here)
        return text[here:]

    def _read(self, tokens: Tokens, text: str, here: int) -> int:
        here = tokens.read(text, here)
        if tokens.ended and self._is_direct is None:
            self._tokens = None
            self._held.clear()
        else:
            self._over = tokens.ended or tokens.broken or self._is_direct is False
        return here

    def _on_token(self, token: Token, depth: int, text: str) -> None:
        if depth != 1:
            return
        if token is Token.KEY:
            self._field, self._type = text, []
        elif self._field == "type" and self._is_direct is None:
            if token is Token.TEXT:
                self._type.append(text)
            elif token is not Token.TEXT_BEGINS:
                self._is_direct = token is Token.TEXT_ENDS and "".join(self._type) == DIRECT_RESPONSE
                self._release()
        elif self._field == "content" and token is Token.TEXT:
            self._held.append(text)
            self._release()

    def _release(self) -> None:
        if self._is_direct:
            self._shown += self._held
        if self._is_direct is not None:
            self._held.clear()
