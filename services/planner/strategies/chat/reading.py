"""Reads one part of a chat turn as it streams: text for the user, with hidden blocks in it, and calls of tools. Pure.

Rule 1: all text of a reply counts before its calls, whatever order they come in. Thoughts are no text, and calls that
stand in the text (in JSON, or in the notation of a model) are calls.
Rule 2: a call that cannot be made is answered by its reason, as a tool answers. The text and the other calls stay.
Rule 3: only what the scanner releases is shown. What it holds back at the end of a part may belong to the next one.
Rule 4: the parts of a turn are one text, read by one scanner. That of a part is made again from the raw texts of the
parts before it, which the state of the run keeps: the log alone decides what it does.
Rule 5: a block is an echo if the model was shown its text before. What was shown later does not change what was.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from contracts.artifacts import ArtifactRef
from contracts.runs.decisions import PLAN, TASK
from contracts.runs.events import Asked, Observed, RunEvent, RunStarted, Step
from contracts.runs.pages import PageView
from contracts.runs.step_events import ReplyForm
from contracts.sessions.proposals import APPLICABLE
from contracts.tools.messages import ToolSpec
from contracts.wire import names
from contracts.wire.base import MAX_INLINE_BYTES
from contracts.wire.faults import Fault
from services.planner.models.types import Reply
from services.planner.replies.marked.blocks import Page, Response
from services.planner.replies.marked.scanner import Echoes, MarkerScanner
from services.planner.replies.plain_text import TextStream, is_action, read_plain
from services.planner.replies.strict_json import loads_or
from services.planner.run.ending.terminal import ELEMENTS
from services.planner.run.state.run import Run, StrategyState
from services.planner.run.turn.decision import Calls, Decision, Final, Invalid, form_of
from services.planner.strategies.react.reading import ReactReading
from services.shared.redaction.json_values import strings_in
from services.shared.runs.pages.page_types import BUILT_IN_PAYLOADS, DATA_PROPOSAL, PayloadType

OF_TOOL = "custom_payload"
"""The field of a result in which a tool makes a payload: `{type, data}`."""
PROPOSAL_PENDING = "proposal_pending"
"""Warning: the request keeps the proposal before, so that a new one was dropped."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Texts that the model is shown from now on: results of tools, and what people have added."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChatState(StrategyState):
    """The state of the strategy."""

    has_parts = True
    turn: tuple[str | Shown, ...] = ()
    """The raw text of each part, and what was shown in between."""
    positions: tuple[dict[str, Any], ...] = ()
    """Of each call: where it stands in the message."""
    inputs_read: int = 0
    made: tuple[dict[str, Any], ...] = ()
    """Payloads that tools have made: `{call_id, type, data}` each."""
    types: tuple[PayloadType, ...] = BUILT_IN_PAYLOADS

    def after(self, said: str, shown_to: int) -> "ChatState":
        """Return the state after one more part."""
        return replace(self, turn=(*self.turn, said), shown_to=shown_to)

    def scanner(self, run: Run) -> MarkerScanner:
        """Return a scanner that has read all parts."""
        view = run.started.page_view if run.started is not None else None
        actions = frozenset(action.name for action in view.client_actions) if view is not None else frozenset[str]()
        page = Page(tuple(view.payloads) if view is not None else (), actions, self.types)
        scanner = MarkerScanner(page, Echoes(_shown_before(run)))
        for each in self.turn:
            if isinstance(each, Shown):
                scanner.echoes.add(each.texts)
            else:
                scanner.feed(each)
        return scanner

    def final_args(self, run: Run, shown: str = "", *, is_whole: bool = True) -> dict[str, Any]:
        """Return what the parts add up to, as arguments of a final response."""
        scanner = self.scanner(run)
        if not is_whole:
            extra = {"tool_positions": list(self.positions)} if self.positions else {}
            warnings = [code for code in scanner.cancel().warnings if code != "cancelled"]
            return {"answer": scanner.message + shown, "extra": extra, "warnings": warnings}
        message = scanner.message + shown
        response = scanner.finish()[1]
        # Text that was held back at the end of a part is a part of what the next one has shown.
        return answer_args(self, run, replace(response, message=message) if shown else response)


def answer_args(state: ChatState, run: Run, response: Response) -> dict[str, Any]:
    """Return a response as arguments of the final response."""
    request, run_id = run.request, run.started.run_id if run.started is not None else ""
    payload, view = response.custom_payload, run.started.page_view if run.started is not None else None
    is_kept = request is not None and request.keep_proposal and view is not None and view.pending_proposal is not None
    if payload is not None and payload["type"] in APPLICABLE and is_kept:
        payload = None
        response = replace(response, warnings=sorted([*response.warnings, PROPOSAL_PENDING]))
    if payload is not None and payload["type"] == DATA_PROPOSAL.name:
        payload = {**payload, "data": _by_column_ids(payload["data"], view.columns if view is not None else None)}
    of_tools, faults = _of_tools(state, run_id, view)
    if payload is not None and payload["type"] in {each["type"] for each in of_tools}:
        payload, faults = None, [*faults, "extra_payload_dropped"]
    response = replace(response, custom_payload=payload, warnings=sorted([*response.warnings, *faults]))
    args = response.final_args(names.payload_id(run_id), state.types)
    if of_tools:
        every = [*of_tools, *([args["extra"]["custom_payload"]] if payload is not None else [])]
        args["extra"] |= {"custom_payload": every[-1], "payloads": every}
    if state.positions:
        args["extra"]["tool_positions"] = list(state.positions)
    return args


def _of_tools(state: ChatState, run_id: str, view: PageView | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the payloads of tools that count on the page, and the codes of what is wrong with others."""
    found, faults = [], []
    types = {each.name: each for each in state.types}
    for each in state.made:
        kind, data = types[each["type"]], each["data"]
        wrong = kind.faults(data)
        if view is None or kind.name not in view.payloads:
            wrong = ["payload_not_available_on_page"]
        if not wrong:
            payload_id = names.payload_id(f"{run_id}.{each['call_id']}")
            made = {"type": kind.name, "data": data, "id": payload_id, "summary": kind.summary(data)}
            found.append({**made, "source": "tool"})
        faults += wrong
    return found, faults


def state_of(run: Run) -> ChatState:
    """Return the state of a run with this strategy."""
    return run.strategy_state if isinstance(run.strategy_state, ChatState) else ChatState()


def fold(run: Run, event: RunEvent, types: tuple[PayloadType, ...] = BUILT_IN_PAYLOADS) -> ChatState:
    """Return the state after an event, which the run has taken in already."""
    state = state_of(run)
    match event:
        case RunStarted():
            return ChatState(types=types)
        case Asked() if len(run.inputs.read) > state.inputs_read:
            texts = tuple(added.text for added in run.inputs.read[state.inputs_read :])
            return replace(state, turn=(*state.turn, Shown(texts)), inputs_read=len(run.inputs.read))
        case Step(status="started" | "skipped"):
            said = "" if isinstance(event.said, ArtifactRef) else event.said
            positions = [{"call_id": call.call_id, "tool": call.tool, "offset": event.shown_to} for call in event.calls]
            return replace(
                state.after(said, max(event.shown_to, state.shown_to)), positions=(*state.positions, *positions)
            )
        case Observed():
            reason = event.failure.reason if event.failure is not None else None
            texts = tuple(strings_in([event.observation, event.content, reason]))
            made = (*state.made, *_made_by(event, state.types))
            return replace(state, turn=(*state.turn, Shown(texts)), made=made)
        case _:
            return state


def _shown_before(run: Run) -> Iterator[str]:
    """Yield what the model knows of the conversation and the page when the turn begins, but for what it said itself."""
    if run.started is None:
        return
    request, view, said = run.started.request, run.started.page_view, run.conversation
    yield from strings_in([request.query, request.llm_context])
    if said is not None:
        yield from strings_in([(turn.question, turn.inputs) for turn in said.turns])
        yield from strings_in([said.summary, said.context, said.results])
    if view is not None:
        cells = view.context.replace('\\"', '"').replace("\\n", "\n")  # They are JSON there.
        yield from strings_in([view.context, cells, view.help, view.persona, view.page.filters, view.columns])


def _made_by(observed: Observed, types: Iterable[PayloadType]) -> Iterator[dict[str, Any]]:
    """Yield the payload in a result, if it is of a type that tools may make: a proposal for a table is none."""
    result = observed.observation if observed.status == "succeeded" else None
    found = result.get(OF_TOOL) if isinstance(result, dict) else None
    if isinstance(found, dict) and isinstance(data := found.get("data"), dict):
        yield from (
            {"call_id": observed.call_id, "type": each.name, "data": data}
            for each in types
            if each.source == "tool" and each.name == found.get("type")
        )


def _by_column_ids(data: dict[str, Any], columns: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return the data of a proposal with columns by their ids, where the model has named them.

    Unknown keys stay, and so do all cells of which two are of one column: the check of the operation names them.
    """
    operations = data.get("operations")
    if not columns or not isinstance(operations, list):
        return data
    pairs = [(str(column.get("name", column["id"])), str(column["id"])) for column in columns if column.get("id")]
    ids = {name.lower(): column for name, column in pairs} | dict(pairs) | {column: column for _, column in pairs}

    def of(operation: Any) -> Any:
        if not isinstance(operation, dict):
            return operation
        cells = {key: value for key, value in operation.items() if key in {"data", "changes"}}
        named = {
            key: {ids.get(name, ids.get(name.lower(), name)): cell for name, cell in value.items()}
            for key, value in cells.items()
            if isinstance(value, dict)
        }
        return {**operation, **{key: found for key, found in named.items() if len(found) == len(cells[key])}}

    return {**data, "operations": [of(operation) for operation in operations]}


NOTHING_SAID = "The reply holds no text for the user and no call of a tool: answer the user, or call a tool."
NOT_TOGETHER = "Background tasks and other tools cannot be called in one reply: call this again."
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9_-]")
MAX_NAME_CHARACTERS = 64


class ChatReading(ReactReading):
    """A part of a turn.

    `scanner`: makes a scanner that has read the parts before; `args_of`: the arguments of a final answer from the
    response to the whole turn.
    """

    _expects_json = False
    _text: TextStream

    def __init__(
        self,
        specs: Mapping[str, ToolSpec],
        scanner: Callable[[], MarkerScanner],
        args_of: Callable[[Response], dict[str, Any]],
        **options: Any,
    ) -> None:
        super().__init__(specs, **options)
        self._begin_as_text()
        self._new_scanner, self._args_of = scanner, args_of
        self._scanner = scanner()
        self._said: list[str] = []
        """What the scanner has read of this part."""
        self._shown = [self._scanner.message]

    @property
    def shown(self) -> str:
        """The message, as far as it was streamed to listeners."""
        return "".join(self._shown)

    def feed(self, text: str) -> str:
        """Read a part of the text, and return the text to stream."""
        was_open, said = self._scanner.open_block, self._text.feed(text)
        self._said.append(said)
        visible = self._scanner.feed(said)
        self._shown.append(visible)
        self.block_begun = self._scanner.open_block if was_open is None else None
        return visible

    def decide(self, reply: Reply) -> Decision:
        """Return the decision of the complete reply."""
        if not self._native_reasoning:
            reply = replace(reply, reasoning=None)
        plain = read_plain(reply.text, self._names, is_expected=self._habit.is_expected)
        normalized = self._normalized(plain.action, reply) if plain.action else None
        is_call = plain.written is not None or (normalized is not None and is_action(plain.action, normalized))
        text = "".join(self._said) if is_call else plain.text
        decision: Decision | None = None
        if reply.tool_calls:
            decision = self._native(reply)
        elif plain.written is not None:
            decision = self._called(reply, plain.written)
        elif is_call and normalized is not None:
            decision = self._decided(reply, normalized)
        if not reply.tool_calls:
            self._habit.note(is_unopened=plain.is_unopened)
        if isinstance(decision, Invalid):
            if reply.ending == "whole" or not text.strip():
                return decision
            decision = None  # Of a reply that was cut counts what was said.
        if isinstance(decision, Final) and (is_call or not text.strip()):
            text = str(decision.args.get("answer", ""))
        return self._part(reply, decision, text, reply.reasoning or plain.thought)

    def _part(self, reply: Reply, decision: Decision | None, text: str, thought: str | None) -> Decision:
        """Return a decision as a part of the message, with its text. None: the text is the end of the turn."""
        if text.startswith(read := "".join(self._said)):
            self._scanner.feed(text[len(read) :])
        else:
            self._scanner = self._new_scanner()
            self._scanner.feed(text)
        part: dict[str, Any] = {"said": text, "message": self._scanner.message, "thought": thought}
        if isinstance(decision, Calls) and (reply.ending == "whole" or not decision.refused):
            return replace(decision, **part)
        response = self._scanner.finish()[1]
        args = self._args_of(response)
        if isinstance(decision, Final):
            beside = decision.args.get("warnings")
            warnings = [*(beside if isinstance(beside, list) else []), *args["warnings"]]
            return replace(decision, args={**decision.args, **args, "warnings": warnings}, has_text=True, **part)
        common: dict[str, Any] = {"usage": reply.usage, "reasoning": reply.reasoning}
        final = Final(args=args, form=ReplyForm(form="text"), **common, **part)
        is_empty = not response.message and not args["extra"].keys() & ELEMENTS
        if text.strip() or reply.ending != "whole" or not (is_empty or thought):
            return final
        return Invalid(complaint=NOTHING_SAID, reply=reply.text, salvage=None if is_empty else final, **common)

    def _native(self, reply: Reply) -> Decision:
        """Return the decision of native calls. Where they cannot all be made, each is judged alone."""
        whole = self._decided_calls(reply, reply.tool_calls)
        if not isinstance(whole, Invalid):
            return whole
        calls: list[tuple[str, dict[str, Any]]] = []
        refused: dict[int, Fault] = {}
        for call in reply.tool_calls:
            one = self._decided_calls(reply, [call])
            if isinstance(one, Calls) and (one.node != TASK or len(reply.tool_calls) == 1):
                calls += one.calls
            elif not isinstance(one, Final):
                complaint = one.complaint if isinstance(one, Invalid) else NOT_TOGETHER
                refused[len(calls)] = Fault(code="invalid_args", reason=complaint)
                name = _NOT_OF_NAMES.sub("_", call["function"]["name"])[:MAX_NAME_CHARACTERS]
                text = call["function"]["arguments"]
                args = loads_or(text) if len(text) <= MAX_INLINE_BYTES else None
                calls.append((name or "unnamed", args if isinstance(args, dict) else {}))
        return Calls(
            node=calls[0][0] if len(calls) == 1 else PLAN,
            calls=tuple(calls),
            refused=refused,
            usage=reply.usage,
            reasoning=reply.reasoning,
            form=form_of("native", ()),
        )

    def _allowed(self) -> str:
        return "Call a tool, or answer with text." if self._listed else "There are no tools: answer with text."
