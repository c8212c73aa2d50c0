"""Renders the history of a run, each action format in its own dialect. Pure.

Rule 1: messages that were rendered once never change, except in a compaction. So the request of each model call begins
with the messages of the call before, byte for byte, and the provider's cache hits.
Rule 2: what is rendered of a history is cached as long as the history, so only new items are rendered. The cache holds
no facts: a run that is folded again is rendered again, to the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, assert_never
from weakref import WeakKeyDictionary

from contracts.events import ActionFormat, ActionTransport, Observed, Repaired, RunStarted, Step
from services.planner.conversation import compaction
from services.planner.conversation.images import images_messages
from services.planner.conversation.json_actions import JsonActions
from services.planner.conversation.messages import Message, answer_note, question_message
from services.planner.conversation.native import NativeTools
from services.planner.run.history import Compaction, Decided, History, ImagesShown, Item, Length, Outcomes, Question
from services.planner.run.state import Run


class Dialect(Protocol):
    """The messages that look different in each action format and transport."""

    def decision(self, step: Step) -> Message:
        """Render a decision of the model."""
        ...

    def outcomes(self, step: Step, observed: Sequence[Observed], note: str | None = None) -> list[Message]:
        """Render the outcomes of a decision's calls. `note`: a line of the runtime behind them."""
        ...

    def rejection(self, repaired: Repaired) -> list[Message]:
        """Render a reply that was not accepted, and the complaint about it."""
        ...


def dialect(action_format: ActionFormat = "auto", transport: ActionTransport = "json") -> Dialect:
    """Return the dialect of an action format and transport."""
    return NativeTools() if transport == "tools" else JsonActions(action_format)


def dialect_of(started: RunStarted) -> Dialect:
    """Return the dialect of a run."""
    return dialect(started.action_format, started.action_transport)


@dataclass(slots=True)
class _Rendered:
    """The messages of the first `count` items of a history."""

    dialect: Dialect
    count: int = 0
    messages: list[Message] = field(default_factory=list)
    characters: int = 0
    compacted_characters: int = 0

    def catch_up(self, items: Sequence[Item]) -> None:
        """Render the items that are new."""
        while self.count < len(items):
            self._add(items[self.count])
            self.count += 1

    def _add(self, item: Item) -> None:
        match item:
            case Compaction():
                self.messages = compaction.compacted(self.messages, item.line_characters, newest=item.newest)
                self.characters = self.compacted_characters = sum(map(compaction.length, self.messages))
                return
            case Question():
                new = [question_message(item.request, item.images)]
            case Decided():
                new = [self.dialect.decision(item.step)]
            case Outcomes():
                new = self.dialect.outcomes(item.step, item.observed, item.note)
            case ImagesShown():
                new = images_messages(item.images)
            case _:
                assert_never(item)
        self.messages += new
        self.characters += sum(map(compaction.length, new))


class Renderer:
    """Renders the conversations of runs."""

    def __init__(self) -> None:
        self._rendered: WeakKeyDictionary[History, _Rendered] = WeakKeyDictionary()

    def history(self, run: Run) -> Sequence[Message]:
        """Return the conversation so far, without a copy: it is the cache's own."""
        return self._of(run).messages

    def rejections(self, run: Run) -> list[Message]:
        """Return the replies of this turn that were not accepted, with the complaints. They follow the history."""
        dialect = self._of(run).dialect
        messages: list[Message] = []
        for repaired in run.rejected:
            messages += [answer_note()] if repaired.kind == "answer" else dialect.rejection(repaired)
        return messages

    def length(self, run: Run) -> Length:
        """Measure the history."""
        rendered = self._of(run)
        return Length(rendered.characters, rendered.compacted_characters, len(rendered.messages))

    def _of(self, run: Run) -> _Rendered:
        assert run.started is not None  # noqa: S101, a model is asked after `run_started` only
        rendered = self._rendered.get(run.history)
        if rendered is None:
            rendered = self._rendered[run.history] = _Rendered(dialect_of(run.started))
        rendered.catch_up(run.history.items)
        return rendered
