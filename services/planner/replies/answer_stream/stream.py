"""The answer inside a reply, as it arrives: finds the action's object and follows it.

The rules are told in the package's docstring.
"""

from collections.abc import Set as AbstractSet

from services.planner.replies.actions.names import ActionFormat
from services.planner.replies.answer_stream.action import Action
from services.planner.replies.answer_stream.prose import ObjectFinder
from services.planner.replies.answer_stream.tokens import Tokens


class AnswerStream:
    """Reads one reply of the model chunk by chunk and gives back what the user may see of it at once.

    `tools` are the names that the model may call: a tool named like an opcode in another case is that tool, so the
    stream has to know it.
    """

    def __init__(self, *, action_format: ActionFormat = "auto", tools: AbstractSet[str] = frozenset()) -> None:
        self._format = action_format
        self._tools = tools
        self._finder = ObjectFinder()
        self._action = Action(action_format, tools)
        self._tokens: Tokens | None = None
        self._characters_examined = 0
        self._shown: list[str] = []
        self._over = False

    def feed(self, text: str) -> str:
        """Read the next piece of the reply and return the characters of the answer that may be shown now, often none."""
        if self._action.flows and not self._over and self._tokens is not None:
            more = self._tokens.flows_on(text)
            if more is not None:
                # Nearly every piece of an answer is this.
                self._shown.append(more)
                return more
        here = 0
        while here < len(text) and not self._over:
            here = self._search(text, here) if self._tokens is None else self._read(self._tokens, text, here)
        new = "".join(self._action.new)
        if new:
            self._action.new.clear()
            self._shown.append(new)
        return new

    def finish(self) -> str:
        """Tell that the reply has ended.

        Nothing is released by that (what is still held belongs to no certain answer), so: always "".
        """
        self._over = True
        return ""

    @property
    def is_terminal(self) -> bool:
        """Was the action recognised as final?

        Where the node is null, that is certain only when the answer began or the object ended.
        """
        return self._action.is_final(ended=self._tokens is not None and self._tokens.ended)

    @property
    def shown(self) -> str:
        """All that was given out."""
        return "".join(self._shown)

    @property
    def characters_examined(self) -> int:
        """How many characters were examined, those counted again that were examined again."""
        return (
            self._characters_examined
            + self._finder.characters_examined
            + (self._tokens.characters_examined if self._tokens else 0)
        )

    def _search(self, text: str, here: int) -> int:
        here = self._finder.search(text, here)
        self._over = self._finder.lost
        if self._finder.found:
            self._action = Action(self._format, self._tools)
            self._tokens = Tokens(self._action.on_token)
            self._action.on_settled = self._tokens.stop
        return here

    def _read(self, tokens: Tokens, text: str, here: int) -> int:
        here = tokens.read(text, here)
        if tokens.ended and not self._action.is_action and self._format != "unified":
            self._characters_examined += tokens.characters_examined
            self._tokens = None
        else:
            self._over = tokens.ended or tokens.broken or tokens.stopped
        return here
