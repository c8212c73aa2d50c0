"""Streams the answer of a reply while it arrives: finds the action's object and follows it.

The package's docstring gives the rules.

Compares the final parse of a reply with the text that was streamed.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from contracts.runs.actions import FINAL_RESPONSE, PlannerAction
from services.planner.replies.actions.names import ActionFormat
from services.planner.replies.answer_stream.action import Action
from services.planner.replies.answer_stream.prose import ObjectFinder
from services.planner.replies.answer_stream.tokens import Tokens
from services.planner.replies.thoughts import unfinished_from


class AnswerStream:
    """Reads one reply of the model part by part, and returns the answer text to stream at once.

    `tools`: the names that the model may call. They are needed because a tool may be named like an opcode in another
    case. Without `amid_prose`, an object in a line of prose, which may be a draft in a thought, is left to the final
    parse.
    """

    def __init__(
        self,
        *,
        action_format: ActionFormat = "auto",
        tools: AbstractSet[str] = frozenset(),
        amid_prose: bool = True,
    ) -> None:
        self._format = action_format
        self._tools = tools
        self._amid_prose = amid_prose
        self._finder = ObjectFinder()
        self._held = ""
        """The end of a part that may begin a mark of a thought."""
        self._action = Action(action_format, tools)
        self._tokens: Tokens | None = None
        self._characters_examined = 0
        self._shown: list[str] = []
        self._over = False

    def feed(self, text: str) -> str:
        """Read the next part of the reply, and return the answer text to stream now; often empty."""
        if self._action.flows and not self._over and self._tokens is not None:
            more = self._tokens.flows_on(text)
            if more is not None:
                # Nearly every part of an answer takes this path.
                self._shown.append(more)
                return more
        text = self._held + text
        cut = unfinished_from(text)
        self._feed(text[:cut])
        self._held = text[cut:] if self._tokens is None else self._feed(text[cut:], in_object=True)
        new = "".join(self._action.new)
        if new:
            self._action.new.clear()
            self._shown.append(new)
        return new

    def _feed(self, text: str, *, in_object: bool = False) -> str:
        """Read a text, or what of it belongs to the object. Return the rest."""
        here = 0
        while here < len(text) and not self._over and not (in_object and self._tokens is None):
            here = self._search(text, here) if self._tokens is None else self._read(self._tokens, text, here)
        return text[here:]

    def finish(self) -> str:
        """End the reply. Returns "": text that is still held does not belong to a certain answer."""
        self._over = True
        return ""

    @property
    def is_terminal(self) -> bool:
        """Whether the action is final.

        With a null node, that is certain only once the answer has begun or the object has ended.
        """
        return self._action.is_final(ended=self._tokens is not None and self._tokens.ended)

    @property
    def shown(self) -> str:
        """The text returned so far."""
        return "".join(self._shown)

    @property
    def characters_examined(self) -> int:
        """The number of characters examined. Repeated examinations count again."""
        return (
            self._characters_examined
            + self._finder.characters_examined
            + (self._tokens.characters_examined if self._tokens else 0)
        )

    def _search(self, text: str, here: int) -> int:
        here = self._finder.search(text, here)
        self._over = self._finder.lost or (self._finder.found and self._finder.is_amid and not self._amid_prose)
        if self._finder.found and not self._over:
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


Void = Literal["unparseable", "another_action", "another_answer"]
"""Why streamed text does not count: the reply is no action, or no final action, or has another answer."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What follows a reply that has ended.

    `action`: to be executed; None: the reply is no action and must be repaired. `text`: the rest of a final answer, to
    be streamed as one chunk before `done`; often empty. With `void`, the streamed text does not count: the turn
    continues with the next attempt, and `text` (of a final action, the whole answer) belongs to that attempt.
    """

    action: PlannerAction | None
    text: str = ""
    void: Void | None = None


def settle(stream: AnswerStream, action: PlannerAction | None) -> Settled:
    """Compare the streamed text with the `action` of the final parse of the same reply (None: it found none).

    Afterwards the joined chunks of the last attempt are the answer, for any reply. A text that replaces a reply (a
    salvage, a fallback) is settled like an answer: as the final action that holds it.
    """
    shown = stream.shown
    answer = None
    if action is not None and action.next_node == FINAL_RESPONSE:
        answer = given if isinstance(given := action.args.get("answer"), str) else ""
    if answer is not None and answer.startswith(shown):
        return Settled(action, answer[len(shown) :])
    if not shown:
        return Settled(action)
    if action is None:
        return Settled(None, void="unparseable")
    if answer is None:
        return Settled(action, void="another_action")
    return Settled(action, answer, void="another_answer")
