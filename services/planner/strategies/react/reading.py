"""Reads a reply of the default strategy while it streams.

The answer stream returns text only of an action that is certain to be final. At the end of the reply `settle` compares
that text with the parsed action, so the streamed and the executed action are the same.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from contracts.runs.actions import FINAL_RESPONSE, PLAN, TASK, Join, PlannerAction
from contracts.runs.events import ActionFormat
from contracts.tools.messages import ToolSpec
from services.planner.conversation.task_tools import TASK_SPECS, call_name
from services.planner.models.types import CallPiece, Reply
from services.planner.replies.actions import THINK_TAGS, Normalized, meant, normalize_action, opcode_of, renamed
from services.planner.replies.answer_stream import AnswerStream, settle
from services.planner.run.calls.joins import JoinInvalid, check_join, check_plan, read_join
from services.planner.run.calls.tasks import SPAWN
from services.planner.run.turn.decision import Calls, Decision, Final, Invalid
from services.planner.strategies.react.task_reading import read_task
from services.shared.json_schema.checks import InvalidSchema, complaints
from services.shared.tools.builtin import READ_ARTIFACT, READ_ARTIFACT_SPEC

MAX_COMPLAINTS = 5
MAX_NAMES_LISTED = 50
MAX_CALLS_BYTES = 512_000
"""Largest arguments of a reply that calls tools: its record and each call message can hold one megabyte."""
MAX_BYTES_PER_CHARACTER = 4
_BUILT_IN = (READ_ARTIFACT_SPEC, *TASK_SPECS.values())
_NODE = "next_node"
_NO_NODE = "invalid"
MAX_NODE_CHARACTERS = 80
_OBJECTS = ("{", "[", '"', "\ufeff")
_WRAPPINGS = (*_OBJECTS, "`")
_MAY_BEGIN = re.compile(r"[{<]")
_QUOTED_KEY = re.compile(r"""[{,]\s*\\*["']|\{[^{}]*["']\s*:""")
_THINK_TAG = re.compile(rf"<(?P<closing>/?)(?P<name>{'|'.join(THINK_TAGS)})>", re.IGNORECASE)


class ReactReading:
    """Reads one reply while it streams."""

    def __init__(
        self,
        specs: Mapping[str, ToolSpec],
        *,
        action_format: ActionFormat = "auto",
        native_reasoning: bool = True,
        tasks: bool = False,
    ) -> None:
        self._tasks = tasks
        self._specs = specs if not tasks else {**TASK_SPECS, **specs}
        self._names = frozenset(self._specs)
        self._listed = self._names - {READ_ARTIFACT}
        """The names in the catalogue."""
        self._action_format: ActionFormat = action_format
        self._native_reasoning = native_reasoning
        self._stream = AnswerStream(action_format=action_format, tools=self._names)

    @property
    def shown(self) -> str:
        """The text of this reply that was streamed to listeners."""
        return self._stream.shown

    def feed(self, text: str) -> str:
        """Read a part of the reply, and return the answer text to stream now."""
        return self._stream.feed(text)

    def feed_call(self, piece: CallPiece) -> str:
        """Ignore native calls, which were not requested. `decide` reads them if the reply has nothing else."""
        del piece
        return ""

    def feed_reasoning(self, text: str) -> str:
        """Return the reasoning to stream; nothing where the deployment ignores native reasoning."""
        return text if self._native_reasoning else ""

    def decide(self, reply: Reply) -> Decision:
        """Return the decision of the complete reply."""
        self._stream.finish()
        if not self._native_reasoning:
            reply = replace(reply, reasoning=None)
        given = reply.text if reply.text.strip() or not reply.tool_calls else {"tool_calls": list(reply.tool_calls)}
        normalized = normalize_action(
            given, reply.reasoning, tools=self._names, action_format=self._action_format, tasks=self._tasks
        )
        settled = settle(self._stream, normalized.action)
        if settled.void is not None or settled.action is None:
            return self._invalid(
                reply,
                normalized,
                self._complaint(normalized) or "the answer that was shown is not the one of the action",
            )
        common: dict[str, Any] = {
            "thought": normalized.reasoning,
            "reasoning": reply.reasoning,
            "usage": reply.usage,
            "warnings": normalized.warnings,
        }
        decision = self._decide(settled.action, common)
        if (
            isinstance(decision, Calls)
            and len(reply.text) > MAX_CALLS_BYTES // MAX_BYTES_PER_CHARACTER
            and len(reply.text.encode()) > MAX_CALLS_BYTES
        ):
            decision = f"The arguments are too large: a call may have {MAX_CALLS_BYTES:,} bytes."
        if isinstance(decision, str):
            return self._invalid(reply, normalized, decision)
        return decision

    def _decide(self, action: PlannerAction, common: dict[str, Any]) -> Decision | str:
        """Return a decision, or a complaint for the model."""
        if action.next_node == FINAL_RESPONSE:
            return Final(args=action.args, has_text=bool(str(action.args.get("answer", "")).strip()), **common)
        if action.next_node == PLAN:
            return self._plan(action, common)
        if action.next_node == TASK:
            if not self._tasks:
                return f"Background tasks are not available here. {self._allowed()}"
            args = read_task(action.args, {name: spec for name, spec in self._specs.items() if spec not in _BUILT_IN})
            return args if isinstance(args, str) else Calls(node=TASK, calls=((SPAWN, args),), **common)
        if (complaint := self._faults(action)) is not None:
            return complaint
        name = call_name(self._specs[action.next_node])
        return Calls(node=name, calls=((name, action.args),), **common)

    def _complaint(self, normalized: Normalized) -> str:
        return normalized.complaint

    def _allowed(self) -> str:
        """Name the allowed actions, in the terms of the action format."""
        answer = (
            "answer in `args` with `next_node` null"
            if self._action_format == "legacy"
            else "answer with final_response"
        )
        task = ", start a task" if self._tasks else ""
        return f"Call a tool, run a plan{task}, or {answer}." if self._listed else f"There are no tools, so {answer}."

    def _plan(self, action: PlannerAction, common: dict[str, Any]) -> Decision | str:
        """Check all steps first: one invalid step rejects the whole plan, and nothing runs."""
        if self._tasks and any(opcode_of(step["node"], self._names) == TASK for step in action.args["steps"]):
            return "task is no step of a plan, and starts alone: reply with one task, then with the next one."
        args = dict(action.args)
        places = [*args["steps"], *([args["join"]] if "join" in args else [])]
        names = {place["node"]: meant(place["node"], self._names) or place["node"] for place in places}
        args["steps"] = [{**step, "node": names[step["node"]]} for step in args["steps"]]
        if "join" in args:
            args["join"] = {**args["join"], "node": names[args["join"]["node"]]}
        if complaints_ := check_plan(args, self._specs):
            return " ".join(complaint.line for complaint in complaints_[:MAX_COMPLAINTS])
        common["warnings"] = (*common["warnings"], *filter(None, (renamed(*pair) for pair in names.items())))
        calls = tuple((call_name(self._specs[step["node"]]), dict(step.get("args") or {})) for step in args["steps"])
        join = read_join(args)
        if isinstance(join, Join):
            wrong = check_join(join, self._specs)
            join = wrong or join.model_copy(update={"node": self._specs[join.node].name})
        if isinstance(join, JoinInvalid):
            return Calls(node=PLAN, calls=calls, note=join.line, **common)
        return Calls(node=PLAN, calls=calls, join=join, **common)

    def _faults(self, action: PlannerAction) -> str | None:
        if (spec := self._specs.get(action.next_node)) is None:
            known = ", ".join(sorted(self._listed)[:MAX_NAMES_LISTED])
            return f"There is no tool {action.next_node[:80]!r}. " + (
                f"The tools are: {known}." if known else self._allowed()
            )
        try:
            faults = complaints(action.args, spec.input_schema)
        except InvalidSchema as error:
            return f"The tool {action.next_node!r} cannot be used: its input schema is invalid ({error})."
        if not faults:
            return None
        return f"The arguments of {action.next_node!r} do not fit its schema: {'; '.join(faults)}."

    def _invalid(self, reply: Reply, normalized: Normalized, complaint: str) -> Invalid:
        node = normalized.action.next_node if normalized.action is not None else normalized.error
        return Invalid(
            node=(node or _NO_NODE)[:MAX_NODE_CHARACTERS],
            complaint=complaint,
            reply=reply.text,
            salvage=self._salvage(reply, normalized),
            usage=reply.usage,
            reasoning=reply.reasoning,
        )

    def _salvage(self, reply: Reply, normalized: Normalized) -> Decision | None:
        """Return what can be used of an invalid reply.

        That is a valid alternate, else the text as the answer, unless it is a broken action.
        """
        common: dict[str, Any] = {
            "usage": reply.usage,
            "reasoning": reply.reasoning,
            "warnings": ("the model's reply was repaired by the runtime",),
        }
        for alternate in normalized.alternates:
            decision = self._decide(alternate, common)
            if not isinstance(decision, str):
                return decision
        text, thought = _apart(reply.text)
        text = text.strip()
        is_action = normalized.error is None or normalized.was_action or "{" in text or _NODE in text
        if text and not is_action:
            return Final(args={"answer": text}, thought=reply.reasoning or thought, **common)
        return None


class TextReading(ReactReading):
    """The answer text that was asked for alone. It is streamed up to a character that may begin an object.

    If the model replies with an action again, the action is read. A tool call that it writes instead is not streamed.
    """

    def __init__(
        self,
        specs: Mapping[str, ToolSpec],
        args: Mapping[str, Any],
        *,
        action_format: ActionFormat = "auto",
        native_reasoning: bool = True,
        tasks: bool = False,
    ) -> None:
        super().__init__(specs, action_format=action_format, native_reasoning=native_reasoning, tasks=tasks)
        self._args = args
        self._visible: list[str] = []
        self._holds = False

    @property
    def shown(self) -> str:
        """The text of this reply that was streamed to listeners."""
        return "".join(self._visible)

    def feed(self, text: str) -> str:
        """Read a part of the reply, and return the answer text to stream now."""
        if self._holds:
            return ""
        if not self._visible:
            text = text.lstrip()
            self._holds = text.startswith(_WRAPPINGS)
        begins = _MAY_BEGIN.search(text)
        self._holds = self._holds or begins is not None
        visible = (
            ""
            if not self._visible and self._holds and text.startswith(_WRAPPINGS)
            else text[: begins.start() if begins else None]
        )
        if visible:
            self._visible.append(visible)
        return visible

    def decide(self, reply: Reply) -> Decision:
        """Return a Final for any reply: with its text, with the answer of its action, or without a text."""
        text, thought = _apart(reply.text)
        text = text.lstrip()
        warnings: tuple[str, ...] = ()
        if text.startswith(_WRAPPINGS) or "{" in text or _NODE in text:
            normalized = normalize_action(reply.text, tools=self._names)
            action = normalized.action
            if action is not None and action.next_node == FINAL_RESPONSE:
                text, warnings = str(action.args.get("answer", "")), normalized.warnings
            elif (
                action is not None
                or normalized.was_action
                or _NODE in text
                or text.startswith(_OBJECTS)
                # Users must not receive broken JSON.
                or (normalized.error == "unparseable" and _QUOTED_KEY.search(text) is not None)
            ):
                text = ""
        args = {**self._args, "answer": text} if text.strip() else dict(self._args)
        reasoning = reply.reasoning if self._native_reasoning else None
        return Final(
            args=args,
            has_text=bool(text.strip()),
            thought=reasoning or thought,
            usage=reply.usage,
            reasoning=reasoning,
            warnings=warnings,
        )


def _apart(text: str) -> tuple[str, str | None]:
    """Split a text into the part outside closed think elements and the part inside.

    A single pattern for an element would search from each open tag to the end, in quadratic time.
    """
    closing: dict[str, int] = {}
    elements: list[tuple[int, int]] = []
    for tag in reversed(list(_THINK_TAG.finditer(text))):
        name = tag["name"].lower()
        if tag["closing"]:
            closing[name] = tag.end()
        elif name in closing:
            elements.append((tag.start(), closing[name]))
    parts, thoughts, here = [], [], 0
    for start, end in reversed(elements):
        if start >= here:
            parts.append(text[here:start])
            thoughts.append(_THINK_TAG.sub("\n", text[start:end]).strip())
            here = end
    return "".join([*parts, text[here:]]), "\n".join(filter(None, thoughts)) or None
