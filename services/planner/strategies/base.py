"""The interface of a strategy. It owns its state, its requests to the model, and what follows from the replies.

`request` builds a request to the model, and `read` reads its reply while it streams. `on_step_ended`, `on_decision`,
`on_outcome` and `on_deadline` give the facts that follow; `fold` keeps the state of the strategy, and `view` says what
a step adds to the conversation. The rules of a run know the last six only (`run.commands.StrategyRules`). A strategy
does no I/O. All share what is known of models that leave the opening mark of their thoughts out (`ThinkingFirst`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, NamedTuple

from contracts.runs.events import ActionTransport, Observed, RunStarted
from contracts.runs.requests import DEFAULT_STRATEGY
from contracts.tools.messages import ToolSpec
from services.planner.agents import Agent
from services.planner.conversation import native
from services.planner.conversation.messages import Dialect, Message
from services.planner.conversation.rendering import Renderer, dialect_of
from services.planner.models import demo
from services.planner.models.types import CallPiece, Facts, ModelRequest, Reply
from services.planner.replies.answer_stream.stream import ObjectStream
from services.planner.replies.plain_text import Plain, TextStream, begins_action
from services.planner.replies.thoughts import Head
from services.planner.run.commands import Handling, Rules, StrategyRules
from services.planner.run.ending import budgets
from services.planner.run.state.history import Length
from services.planner.run.state.run import Event, Run
from services.planner.run.turn import next_step
from services.planner.run.turn.decision import Decision, Final
from services.runtime.newest import Newest
from services.shared.runs.causes import CAUSES
from services.shared.tools.builtin import READ_ARTIFACT, READ_ARTIFACT_SPEC

MAX_MODELS = 1000
FORGOTTEN_AFTER = 20
"""Replies in a row without a closing mark, after which a model no longer counts as one that leaves the other out."""


class ThinkingFirst:
    """The models that leave the opening mark out: those declared, and those whose replies did so in this process."""

    def __init__(self, declared: Collection[str] = ()) -> None:
        self._declared = frozenset(declared)
        self._since: dict[str, int] = {}
        """Model -> its replies since the last one that left the mark out."""

    def __contains__(self, model: str) -> bool:
        return model in self._declared or model in self._since

    def note(self, model: str, *, is_unopened: bool) -> None:
        """Note whether a reply left the mark out."""
        if is_unopened and (model in self._since or len(self._since) < MAX_MODELS):
            self._since[model] = 0
        elif model in self._since:
            self._since[model] += 1
            if self._since[model] >= FORGOTTEN_AFTER:
                del self._since[model]


class Habit(NamedTuple):
    """What is known of one model."""

    models: ThinkingFirst = ThinkingFirst()
    model: str = ""

    @property
    def is_expected(self) -> bool:
        """Whether its reply may begin with a thought without an opening mark."""
        return self.model in self.models

    def note(self, *, is_unopened: bool) -> None:
        """Note whether its reply did so."""
        if self.model:
            self.models.note(self.model, is_unopened=is_unopened)


JOB = "job"
"""The strategy of runs with the cause `job`."""
MAX_CACHED_PREFIXES = 256
Prefix = tuple[Message, list[dict[str, Any]]]
"""The system message of a request, and the functions that it offers."""


class Reading(ABC):
    """Reads one reply while it streams: an object, or a text, which may still be one.

    `block_begun`: the name of a hidden block that has begun in the newest part of its text.
    """

    block_begun: str | None = None
    _text: TextStream | None = None

    def __init__(
        self,
        stream: ObjectStream,
        *,
        habit: Habit = Habit(),  # noqa: B008, it is immutable
        native_reasoning: bool = True,
        sure: str = "",
    ) -> None:
        """`sure`: what the reply begins with where it cannot be a thought."""
        self._stream = stream
        self._habit = habit
        self._native_reasoning = native_reasoning
        self._head = Head(is_expected=habit.is_expected, sure=sure)

    def _begin_as_text(
        self, begins: Callable[[str], bool | None] = begins_action, *, may_announce: bool = False
    ) -> None:
        """Read a text, of which `begins` says whether it is an object."""
        text = TextStream(self._stream, begins, is_expected=self._habit.is_expected, may_announce=may_announce)
        self._text, self._head = text, text.head

    def feed(self, text: str) -> str:
        """Read a part of the reply, and return the answer text to stream now."""
        if self._text is not None:
            return self._text.feed(text)
        text = text if self._head.begun else self._head.feed(text)
        return self._stream.feed(text) if text else ""

    def feed_call(self, piece: CallPiece) -> str:
        """The same for a part of a native tool call, which is not shown where none was asked for."""
        del piece
        return ""

    def feed_reasoning(self, text: str) -> str:
        """Return the reasoning to stream; nothing where the deployment ignores native reasoning."""
        self._head.release()
        return text if self._native_reasoning else ""

    @abstractmethod
    def decide(self, reply: Reply) -> Decision:
        """Return the decision of the complete reply."""

    def _answer(self, reply: Reply, plain: Plain, args: dict[str, Any], **fields: Any) -> Final:
        """Return the decision of a reply that is the text of an answer."""
        reasoning = reply.reasoning if self._native_reasoning else None
        return Final(args=args, usage=reply.usage, reasoning=reasoning, thought=reasoning or plain.thought, **fields)

    @property
    def shown(self) -> str:
        """The answer text returned so far."""
        return (self._text.shown if self._text is not None else "") or self._stream.shown


class Strategy(StrategyRules):
    """One strategy."""

    transport: ActionTransport = "json"
    """How the model writes actions where neither the agent nor the deployment says so."""
    thinking_first = ThinkingFirst()
    """The models whose thoughts have no opening mark, of all strategies of a deployment."""
    may_spawn = False
    """Whether its runs may start background tasks, where their agent has a policy for these."""
    replies_hold_warnings = True
    """Whether the demo model can say in its replies what it is. Else its runs begin with that warning."""

    def warnings(self, model: str) -> list[str]:
        """Return the warnings with which a run of this model begins."""
        return [demo.WARNING] if model == demo.NAME and not self.replies_hold_warnings else []

    def request(self, run: Run, tools: Sequence[ToolSpec], agent: Agent) -> ModelRequest:
        """Build the request for the run's next decision. A strategy whose runs ask no model has neither of these."""
        raise NotImplementedError

    def read(self, run: Run, tools: Sequence[ToolSpec]) -> Reading:
        """Start reading a reply."""
        raise NotImplementedError


class Strategies(dict[str, Strategy]):
    """The strategies of a deployment, by name."""

    def of(self, started: RunStarted | None) -> Strategy:
        """Return the strategy of a run; the default one for a run that is not open, or was refused."""
        if started is not None and not CAUSES[started.request.cause].asks_model:
            return self[JOB]
        return self.get(DEFAULT_STRATEGY if started is None else started.strategy) or self[DEFAULT_STRATEGY]


class AskingStrategy(Strategy):
    """Base of the strategies that ask a model, turn after turn, over a history of which each item is rendered once."""

    def __init__(self, *, native_reasoning: bool, idle_s: float, total_s: float) -> None:
        self._native_reasoning = native_reasoning
        self._idle_s = idle_s
        self._total_s = total_s
        self._renderer = Renderer(may_call_demo_model, self.dialect)
        self._prefixes = Newest[Hashable, Prefix](MAX_CACHED_PREFIXES)

    def dialect(self, started: RunStarted) -> Dialect:
        """Return how the conversation of a run is written."""
        return dialect_of(started)

    def on_step_ended(
        self, run: Run, handling: Handling, rules: Rules, observed: Sequence[Observed] = ()
    ) -> list[Event]:
        """Ask for the next decision: at the opening, and after each step."""
        del observed
        return next_step.ask_next(run, handling, rules)

    def length(self, run: Run) -> Length:
        """Measure the conversation, without the system message."""
        return self._renderer.length(run)

    def _prefix(self, key: Hashable, render: Callable[[], Prefix]) -> Prefix:
        """Return the prefix of this key, rendered once for all runs that share it; the oldest of many is forgotten."""
        found = self._prefixes.get(key)
        if found is None:
            found = self._prefixes[key] = render()
        return found

    @staticmethod
    def _callable(run: Run, functions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the functions, and `read_artifact` where the run has something for it to read."""
        if not run.collected.readable or READ_ARTIFACT in run.opened.tools:
            return functions
        # Appended last, so that the prefix before it stays unchanged.
        return [*functions, *native.functions([READ_ARTIFACT_SPEC], only_tools=True)]

    def _of_thoughts(self, run: Run) -> dict[str, Any]:
        """Return what a reading has to know of thoughts: how the model that is asked writes them, and what counts."""
        habit = Habit(self.thinking_first, (run.asked.model if run.asked else None) or run.model)
        return {"native_reasoning": self._native_reasoning, "habit": habit}

    @staticmethod
    def _facts(run: Run, tools: Sequence[ToolSpec], **own: Any) -> Facts:
        return Facts(
            history=run.history.items,
            rejected=tuple(run.rejected),
            tools=tools,
            steps_left=run.limits.max_steps - run.turn + 1,
            tool_calls_left=budgets.tool_calls_left(run),
            text_alone=run.final_args is not None,
            page=run.started.page_view if run.started is not None else None,
            **own,
        )

    def _request(
        self,
        run: Run,
        facts: Facts,
        system: Message,
        notes: list[Message],
        *,
        functions: list[dict[str, Any]] | None = None,
        must_call: bool = False,
        is_json: bool = False,
    ) -> ModelRequest:
        """Build a request: the stable prefix, the history, the notes of this turn.

        `functions`: those that the model may call, or has to (`must_call`). `is_json`: the reply is to be an object.
        """
        effort = run.effort if self._native_reasoning else None
        # Some providers refuse a forced call with reasoning.
        choice = "required" if must_call and effort is None else "auto"
        return ModelRequest(
            model=(run.asked.model if run.asked else None) or run.model,
            messages=self._renderer.request(run, system, notes),
            reasoning_effort=effort,
            response_format={"type": "json_object"} if is_json else None,
            tools=functions,
            tool_choice=choice if functions is not None else None,
            timeout_s=self._idle_s,
            total_s=self._total_s,
            facts=facts,
        )


def may_call_demo_model(run: Run) -> bool:
    """Whether the demo model, which works from the items of the history, may be called."""
    started = run.started
    return started is None or demo.NAME in {started.model, *started.models, *started.fallbacks}
