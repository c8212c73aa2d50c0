"""Streams the answer of a reply while it arrives: finds the action's object, and follows it path by path.

The package's docstring gives the rules. `settle` compares the final parse of a reply with what was streamed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from contracts.runs.decisions import FINAL_RESPONSE, PlannerAction
from services.planner.replies.actions import forms
from services.planner.replies.actions.names import STREAMED_KEYS, ActionFormat, is_null_word, may_be_encoded, opcode_of
from services.planner.replies.answer_stream.prose import ObjectFinder
from services.planner.replies.answer_stream.tokens import Token, Tokens
from services.planner.replies.thoughts import unfinished_from

_NULLS = frozenset({"null", "None"})
_FINALS = frozenset({FINAL_RESPONSE})
_FIELDS = {"unified": frozenset({"next_node", "args"}), "legacy": frozenset(forms.FIVE_FIELDS)}
"""Fields of an action in formats that accept one form only. After any other field, nothing more of it is streamed."""


class _Node(Enum):
    UNKNOWN = auto()
    FINAL = auto()
    NULL = auto()
    NULL_WORD = auto()
    OTHER = auto()


class Action:
    """Follows the tokens of one object. An answer is held until the node is known, and dropped if it is not final.

    `new` collects the text to stream; its owner empties it.
    """

    def __init__(self, action_format: ActionFormat, tools: AbstractSet[str], new: list[str]) -> None:
        self._new = new
        self.on_settled: Callable[[], None] = lambda: None
        """Called once it is certain that nothing more of the object is streamed, and that no later object counts."""
        self.flows = False
        """The next text is streamed at once, as long as it belongs to the same string."""
        self._two_fields = action_format == "unified"
        self._fields = _FIELDS.get(action_format)
        self._finals = frozenset() if action_format == "legacy" else _FINALS
        self._tools = tools
        self._node = _Node.UNKNOWN
        self._name: list[str] = []
        self._field = ""
        self._args = Token.CLOSE
        self._argument = ""
        self._answer_key: str | None = None
        self._indent: list[str] | None = []
        self._held: list[str] = []
        self._waits = False
        self._barred = False
        self._steps = False
        self._answered = False
        self._said = False
        self._is_whole = False

    @property
    def is_action(self) -> bool:
        """Whether the object has a node. Then no later object counts."""
        return self._node is not _Node.UNKNOWN

    def is_final(self, *, ended: bool) -> bool:
        """Whether it is certain that this is a final action. `ended`: the object has ended."""
        if self._said or self._barred:
            return self._said
        sure = {
            _Node.FINAL: True,
            _Node.NULL: self._answered or (ended and not self._steps),
            _Node.NULL_WORD: self._answered,
        }
        return sure.get(self._node, False)

    def on_token(self, token: Token, depth: int, text: str) -> None:
        """Process the next token. Its depth is 1 for the object's own fields, 2 inside `args`."""
        self.flows = False
        if depth == 1:
            if token is Token.KEY:
                self._field = text
                if self._fields is not None and text not in self._fields:
                    self._bar()
            elif self._field == "next_node":
                self._on_node(token, text)
            elif self._field == "plan" and not (token is Token.SCALAR and text in _NULLS):
                self._bar()  # A plan before the first streamed character counts. After it, this changes nothing.
            elif self._field == "args":
                self._on_args(token, text)
            self._note_steps(self._field, token)
        elif depth == 2 and self._field == "args":  # noqa: PLR2004, see the docstring
            if self._args is Token.OPEN_ARRAY:
                self._on_line(token, text)
            else:
                self._on_argument(token, text)
            self._note_steps(self._argument, token)

    def _on_node(self, token: Token, text: str) -> None:
        if token is Token.TEXT:
            self._name.append(text)
        elif token is Token.TEXT_ENDS:
            name = "".join(self._name)
            is_null = is_null_word(name, self._tools) and not self._two_fields
            is_final = opcode_of(name, self._tools) in self._finals
            self._decide(_Node.FINAL if is_final else _Node.NULL_WORD if is_null else _Node.OTHER)
        elif token is Token.SCALAR:
            self._decide(_Node.NULL if text in _NULLS and not self._two_fields else _Node.OTHER)
        elif token is not Token.TEXT_BEGINS:
            self._decide(_Node.OTHER)

    def _decide(self, node: _Node) -> None:
        self._node = node
        self._release()
        if node is _Node.OTHER or self._barred:
            self.on_settled()
        self._settle_shown()

    def _note_steps(self, name: str, token: Token) -> None:
        """Note a list of steps, also under the key `plan`: it makes a null node without an answer a plan."""
        self._steps = self._steps or (name in {"steps", "plan"} and token is Token.OPEN_ARRAY)

    def _on_args(self, token: Token, text: str) -> None:
        if token in {Token.OPEN_OBJECT, Token.OPEN_ARRAY}:
            self._args = token
        elif token is Token.TEXT_BEGINS:
            self._answered = True
        elif token is Token.TEXT:
            self._on_plain_answer(text)
        elif token is Token.TEXT_ENDS and self._indent:
            self._say("".join(self._indent))
        if self._two_fields and self._args is not Token.OPEN_OBJECT:
            self._bar()

    def _on_plain_answer(self, text: str) -> None:
        """Process a part of `args` that is a text: the answer, unless it may be an encoded object."""
        if self._indent is not None:
            self._indent.append(text)
            if text.isspace():
                return
            text, self._indent = "".join(self._indent), None
            self._waits = may_be_encoded(text)
        self._say(text)

    def _on_argument(self, token: Token, text: str) -> None:
        if token is Token.KEY:
            self._argument = text
            if self._answer_key is None and text in STREAMED_KEYS:
                self._answer_key = text
        elif self._argument == self._answer_key and token is Token.TEXT_BEGINS:
            self._answered = True
        elif self._argument == self._answer_key and token is Token.TEXT:
            self._say(text)
        elif self._argument == self._answer_key and token is Token.TEXT_ENDS:
            self._is_whole = True
            self._settle_shown()
        elif self._argument == self._answer_key and token is Token.SCALAR and text in _NULLS:
            self._answer_key = None

    def _on_line(self, token: Token, text: str) -> None:
        """Process an item of a list: leading texts are lines of the answer, anything else is for the final parse."""
        if token is Token.TEXT_BEGINS:
            if self._answered:
                self._say("\n")
            self._answered = True
        elif token is Token.TEXT:
            self._say(text)
        elif token is not Token.TEXT_ENDS:
            self._waits = True

    def _say(self, text: str) -> None:
        if not self._waits:
            self._held.append(text)
            self._release()

    def _settle_shown(self) -> None:
        """Settle once the whole answer is streamed: nothing that follows in the object can change it."""
        if self._said and self._is_whole:
            self.on_settled()

    def _bar(self) -> None:
        """Stream nothing more of this object."""
        self._barred = True
        self._held.clear()
        if self.is_action:
            self.on_settled()

    def _release(self) -> None:
        if self._barred or self._node is _Node.OTHER:
            self._held.clear()
        elif self._node is not _Node.UNKNOWN and self._held:
            self._new += self._held
            self._held.clear()
            self._said = self.flows = True


class ObjectStream(ABC):
    """Streams text of an object of a reply: finds the object, and follows its tokens.

    Without `amid_prose`, an object in a line of prose, which may be a draft in a thought, is left to the final parse.
    """

    def __init__(self, *, amid_prose: bool = False) -> None:
        self._amid_prose = amid_prose
        self._finder = ObjectFinder()
        self._held = ""
        """The end of a part that may begin a mark of a thought."""
        self._tokens: Tokens | None = None
        self._new: list[str] = []
        """Text to stream that is not returned yet."""
        self._shown: list[str] = []
        self._over = False

    def feed(self, text: str) -> str:
        """Read the next part of the reply, and return the text to stream now; often empty."""
        text = self._held + text
        cut = unfinished_from(text)
        self._feed(text[:cut])
        self._held = text[cut:] if self._tokens is None else self._feed(text[cut:], in_object=True)
        new = "".join(self._new)
        if new:
            self._new.clear()
            self._shown.append(new)
        return new

    @property
    def shown(self) -> str:
        """The text returned so far."""
        return "".join(self._shown)

    def _feed(self, text: str, *, in_object: bool = False) -> str:
        """Read a text, or what of it belongs to the object. Return the rest."""
        here = 0
        while here < len(text) and not self._over and not (in_object and self._tokens is None):
            if self._tokens is not None:
                here = self._tokens.read(text, here)
                self._on_read(self._tokens)
                continue
            here = self._finder.search(text, here)
            self._over = self._finder.lost or (self._finder.found and self._finder.is_amid and not self._amid_prose)
            if self._finder.found and not self._over:
                self._tokens = self._begin()
        return text[here:]

    @abstractmethod
    def _begin(self) -> Tokens:
        """Begin to read an object."""

    @abstractmethod
    def _on_read(self, tokens: Tokens) -> None:
        """Continue with the next object, or end, where one has been read far enough."""


class AnswerStream(ObjectStream):
    """Streams the answer text of an action. `tools`: the run's, since one may be named like an opcode."""

    def __init__(
        self,
        *,
        action_format: ActionFormat = "auto",
        tools: AbstractSet[str] = frozenset(),
        amid_prose: bool = True,
    ) -> None:
        super().__init__(amid_prose=amid_prose)
        self._format = action_format
        self._tools = tools
        self._action = Action(action_format, tools, self._new)
        self._characters_examined = 0

    def feed(self, text: str) -> str:
        """Read the next part of the reply, and return the answer text to stream now; often empty."""
        if self._action.flows and not self._over and self._tokens is not None:
            more = self._tokens.flows_on(text)
            if more is not None:
                # Nearly every part of an answer takes this path.
                self._shown.append(more)
                return more
        return super().feed(text)

    @property
    def is_terminal(self) -> bool:
        """Whether the action is final.

        With a null node, that is certain only once the answer has begun or the object has ended.
        """
        return self._action.is_final(ended=self._tokens is not None and self._tokens.ended)

    @property
    def characters_examined(self) -> int:
        """The number of characters examined. Repeated examinations count again."""
        of_tokens = self._tokens.characters_examined if self._tokens else 0
        return self._characters_examined + self._finder.characters_examined + of_tokens

    def _begin(self) -> Tokens:
        self._action = Action(self._format, self._tools, self._new)
        tokens = Tokens(self._action.on_token)
        self._action.on_settled = tokens.stop
        return tokens

    def _on_read(self, tokens: Tokens) -> None:
        if tokens.ended and not self._action.is_action and self._format != "unified":
            self._characters_examined += tokens.characters_examined
            self._tokens = None
        else:
            self._over = tokens.ended or tokens.broken or tokens.stopped


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
