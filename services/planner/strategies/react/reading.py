"""Reads a reply of the default strategy while it streams.

The answer stream returns text only of an action that is certain to be final. At the end of the reply `settle` compares
that text with the parsed action, so the streamed and the executed action are the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from contracts.runs.decisions import FINAL_RESPONSE, PLAN, TASK, Join, PlannerAction, TaskArgs
from contracts.runs.events import ActionFormat
from contracts.runs.step_events import ReplyForm
from contracts.tools.messages import ToolSpec
from contracts.wire.base import MAX_INLINE_BYTES
from contracts.wire.faults import describe
from services.planner.conversation import native
from services.planner.conversation.catalogue import HINT_LIMIT, RUN_AGENT, TASK_SPECS, AgentTool, agent_task, call_name
from services.planner.models.types import Reply
from services.planner.replies.actions.arguments import task_args
from services.planner.replies.actions.names import ALIAS_MODES, meant, opcode_of, spelled
from services.planner.replies.actions.normalize import Normalized, normalize_action
from services.planner.replies.actions.reading import renamed
from services.planner.replies.answer_stream import AnswerStream, settle
from services.planner.replies.notations import MAX_LEAD_IN_CHARACTERS, Written, find
from services.planner.replies.plain_text import answer_in, read_plain
from services.planner.replies.thoughts import apart
from services.planner.run.calls.joins import NoJoin, check_join, check_plan, read_join
from services.planner.run.calls.tasks import SPAWN
from services.planner.run.turn.decision import Calls, Decision, Final, Invalid, form_of
from services.planner.strategies.base import Reading
from services.shared.json_schema.checks import InvalidSchema, complaints
from services.shared.tools.builtin import READ_ARTIFACT, READ_ARTIFACT_SPEC

MAX_COMPLAINTS = 5
MAX_NAMES_LISTED = 50
MAX_CALLS_BYTES = 512_000
"""Largest arguments of a reply that calls tools: its record and each call message can hold one megabyte."""
_BUILT_IN = (READ_ARTIFACT_SPEC, *TASK_SPECS.values())
_NODE = "next_node"
MAX_NODE_CHARACTERS = 80
MAX_TOOLS_LISTED = 20
_SEALING = ("group_sealed", "retain_turn")
_MODES = '"mode" is "subagent", with a "query", or "job", with a "tool" and its "tool_args"'
_SURE = "{[`\ufeff"
"""What a reply in JSON begins with. Such a reply is no thought, whatever the model's habit is."""


class ReactReading(Reading):
    """Reads one reply while it streams."""

    _stream: AnswerStream

    def __init__(
        self,
        specs: Mapping[str, ToolSpec],
        *,
        action_format: ActionFormat = "auto",
        tasks: bool = False,
        **options: Any,
    ) -> None:
        self._tasks = tasks
        # A tool of the run replaces a built-in one of its name.
        self._specs = {READ_ARTIFACT: READ_ARTIFACT_SPEC, **(TASK_SPECS if tasks else {}), **specs}
        self._names = frozenset(self._specs)
        stream = AnswerStream(action_format=action_format, tools=self._names, amid_prose=False)
        super().__init__(stream, sure=_SURE, **options)
        self._listed = self._names - {READ_ARTIFACT}
        """The names in the catalogue."""
        self._action_format: ActionFormat = action_format

    def decide(self, reply: Reply) -> Decision:
        """Return the decision of the complete reply."""
        if not self._native_reasoning:
            reply = replace(reply, reasoning=None)
        if not reply.text.strip() and reply.tool_calls:
            normalized = self._normalized(json.dumps({"tool_calls": reply.tool_calls}), reply)
            return self._decided(reply, normalized._replace(form=form_of("native", normalized.warnings)))
        if self._action_format == "auto" and _NODE not in reply.text:
            written = find(reply.text[apart(reply.text).start :], self._names)
            if written is not None:
                return self._called(reply, written)
        normalized = self._normalized(reply.text, reply)
        self._habit.note(is_unopened=normalized.is_unopened)
        return self._decided(reply, normalized)

    def _normalized(self, text: str, reply: Reply) -> Normalized:
        return normalize_action(
            text, reply.reasoning, tools=self._names, action_format=self._action_format, tasks=self._tasks
        )

    def _called(self, reply: Reply, written: Written) -> Decision:
        """Return the decision of calls that stand in the text, where they are the reply, else an Invalid."""
        if not self._listed or not written.is_whole or written.start > MAX_LEAD_IN_CHARACTERS:
            complaint = f"{self._misplaced} {self._allowed()}"
            return Invalid(complaint=complaint, reply=reply.text, usage=reply.usage, reasoning=reply.reasoning)
        calls = [
            {"function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}
            for name, arguments in written.fitted(self._specs)
        ]
        decision = self._decided_calls(reply, calls, ReplyForm(form="notation", rules=[written.notation]))
        return replace(decision, salvage=None) if isinstance(decision, Invalid) else decision

    def _decided_calls(self, reply: Reply, calls: Sequence[dict[str, Any]], form: ReplyForm | None = None) -> Decision:
        """Return the decision of native calls, or of calls in another notation, which `form` names."""
        text, dropped = native.action_of(calls)
        normalized = self._normalized(text, reply)
        form = form or form_of("native", normalized.warnings)
        decision = self._decided(replace(reply, text=text), normalized._replace(form=form))
        warnings = (*decision.warnings, dropped_line(dropped)) if dropped else decision.warnings
        return replace(decision, warnings=warnings)

    def _decided(self, reply: Reply, normalized: Normalized) -> Decision:
        settled = settle(self._stream, normalized.action)
        is_superseded = normalized.is_unopened and settled.action is not None
        if (settled.void is not None and not is_superseded) or settled.action is None:
            complaint = normalized.complaint if self._expects_json else normalized.cause
            complaint = complaint or "the answer that was shown is not the one of the action"
            return self._invalid(reply, normalized, complaint)
        common: dict[str, Any] = {
            "thought": normalized.reasoning,
            "reasoning": reply.reasoning,
            "usage": reply.usage,
            "warnings": normalized.warnings,
            "form": normalized.form,
        }
        action, dropped = _joined(settled.action, normalized)
        if dropped:
            common["warnings"] += (dropped_line(dropped),)
        decision = self._decide(action, common)
        if isinstance(decision, Calls) and len(reply.text.encode("utf-8", "surrogatepass")) > MAX_CALLS_BYTES:
            decision = f"The arguments are too large: a call may have {MAX_CALLS_BYTES:,} bytes."
        return self._invalid(reply, normalized, decision) if isinstance(decision, str) else decision

    def _decide(self, action: PlannerAction, common: dict[str, Any]) -> Decision | str:
        """Return a decision, or a complaint for the model."""
        if action.next_node == FINAL_RESPONSE:
            return Final(args=action.args, has_text=bool(str(action.args.get("answer", "")).strip()), **common)
        if action.next_node == PLAN:
            return self._plan(action, common)
        if action.next_node == TASK:
            if not self._tasks:
                return f"Background tasks are not available here. {self._allowed()}"
            return self._spawn([action.args], common)
        if (complaint := self._faults(action)) is not None:
            return complaint
        if isinstance(self._specs[action.next_node], AgentTool):
            return self._spawn([agent_task(action.args)], common)
        name = call_name(self._specs[action.next_node])
        return Calls(node=name, calls=((name, action.args),), **common)

    _expects_json = True
    """Whether the model is asked for JSON in the text, so that a complaint describes its form."""
    _misplaced = "The reply holds a call of a tool in a notation that is not understood here, or text behind a call."

    def _allowed(self) -> str:
        """Name the allowed actions, in the terms of the action format."""
        is_legacy = self._action_format == "legacy"
        answer = "answer in `args` with `next_node` null" if is_legacy else "answer with final_response"
        task = ", start a task" if self._tasks else ""
        return f"Call a tool, run a plan{task}, or {answer}." if self._listed else f"There are no tools, so {answer}."

    def _plan(self, action: PlannerAction, common: dict[str, Any]) -> Decision | str:
        """Check all steps first: one invalid step rejects the whole plan, and nothing runs."""
        nodes = {opcode_of(step["node"], self._names) for step in action.args["steps"]}
        if self._tasks and nodes == {TASK} and "join" not in action.args:
            warnings = [*common["warnings"]]
            given = [
                task_args(step["args"], ALIAS_MODES.get(spelled(step["node"], self._names)), warnings)
                for step in action.args["steps"]
            ]
            return self._spawn(given, {**common, "warnings": tuple(warnings)})
        if self._tasks and TASK in nodes:
            return "task is no step among calls of tools: start the tasks in one reply, and call the tools in another."
        args = dict(action.args)
        places = [*args["steps"], *([args["join"]] if "join" in args else [])]
        names = {place["node"]: meant(place["node"], self._names) or place["node"] for place in places}
        args["steps"] = [{**step, "node": names[step["node"]]} for step in args["steps"]]
        if "join" in args:
            args["join"] = {**args["join"], "node": names[args["join"]["node"]]}
        if wrong_steps := check_plan(args, self._specs):
            return " ".join(wrong_steps[:MAX_COMPLAINTS])
        common["warnings"] = (*common["warnings"], *filter(None, (renamed(*pair) for pair in names.items())))
        asking = {isinstance(self._specs.get(name), AgentTool) for name in names.values()}
        if asking == {True}:
            return self._spawn([agent_task(step["args"]) for step in args["steps"]], common)
        if True in asking:
            return f"{RUN_AGENT} is no step among calls of tools: ask agents in one reply, and call tools in another."
        calls = tuple((call_name(self._specs[step["node"]]), dict(step.get("args") or {})) for step in args["steps"])
        join = read_join(args)
        if isinstance(join, Join):
            wrong = check_join(join, self._specs)
            join = wrong or join.model_copy(update={"node": self._specs[join.node].name})
        if isinstance(join, NoJoin):
            return Calls(node=PLAN, calls=calls, note=join.line, **common)
        return Calls(node=PLAN, calls=calls, join=join, **common)

    def _spawn(self, given: Sequence[Mapping[str, Any]], common: dict[str, Any]) -> Decision | str:
        """Return the spawns of one reply: all of them, or the complaint about one."""
        specs = {name: spec for name, spec in self._specs.items() if spec not in _BUILT_IN}
        tasks = []
        for args in given:
            if isinstance(task := read_task(args, specs), str):
                return task
            tasks.append(task)
        return Calls(node=TASK, calls=tuple((SPAWN, args) for args in in_one_group(tasks)), **common)

    def _faults(self, action: PlannerAction) -> str | None:
        if (spec := self._specs.get(action.next_node)) is None:
            known = ", ".join(sorted(self._listed)[:MAX_NAMES_LISTED])
            instead = f"The tools are: {known}." if known else self._allowed()
            return f"There is no tool {action.next_node[:80]!r}. {instead}"
        try:
            faults = complaints(action.args, spec.input_schema)
        except InvalidSchema as error:
            return f"The tool {action.next_node!r} cannot be used: its input schema is invalid ({error})."
        misfit = f"The arguments of {action.next_node!r} do not fit its schema: {'; '.join(faults)}."
        return misfit if faults else None

    def _invalid(self, reply: Reply, normalized: Normalized, complaint: str) -> Invalid:
        node = normalized.action.next_node if normalized.action is not None else normalized.error
        return Invalid(
            node=(node or "invalid")[:MAX_NODE_CHARACTERS],
            complaint=complaint,
            reply=reply.text,
            salvage=self._salvage(reply, normalized),
            usage=reply.usage,
            reasoning=reply.reasoning,
        )

    def _salvage(self, reply: Reply, normalized: Normalized) -> Decision | None:
        """Return what is usable of an invalid reply: a valid alternate, or its text where that is no broken action."""
        common: dict[str, Any] = {
            "usage": reply.usage,
            "reasoning": reply.reasoning,
            "warnings": ("the model's reply was repaired by the runtime",),
            "form": normalized.form,
        }
        for alternate in normalized.alternates:
            decision = self._decide(alternate, common)
            if not isinstance(decision, str):
                return decision
        plain = read_plain(reply.text, self._names)
        text = plain.text.strip()
        is_action = normalized.error is None or normalized.was_action or "{" in text or _NODE in text
        if text and not is_action:
            common["form"] = ReplyForm(form="text")
            return Final(args={"answer": text}, thought=reply.reasoning or plain.thought, **common)
        return None


def _joined(action: PlannerAction, normalized: Normalized) -> tuple[PlannerAction, list[str]]:
    """Return the plan of all calls of a reply where it has several, and the names of the actions that are left out."""
    calls = [each for each in (action, *normalized.together) if each.next_node not in {FINAL_RESPONSE, PLAN}]
    others = [each for each in normalized.alternates if each != action]
    if action.next_node in {FINAL_RESPONSE, PLAN} or len(calls) == 1:
        return action, [each.next_node for each in others]
    steps = [{"node": each.next_node, "args": each.args} for each in calls]
    dropped = [each.next_node for each in others if each not in calls]
    return PlannerAction(next_node=PLAN, args={"steps": steps}), dropped


def dropped_line(names: Sequence[str]) -> str:
    """Return the warning that names the actions of a reply that were left out."""
    listed = ", ".join(name[:MAX_NODE_CHARACTERS] for name in names[:MAX_COMPLAINTS])
    more = f" and {len(names) - MAX_COMPLAINTS} more" if len(names) > MAX_COMPLAINTS else ""
    return f"the reply held further actions, which were left out: {listed}{more}"


class TextReading(ReactReading):
    """The answer text that was asked for alone. It is streamed as it comes.

    If the model replies with an action again, the action is read. A call that it writes instead is no answer.
    """

    def __init__(self, specs: Mapping[str, ToolSpec], args: Mapping[str, Any], **options: Any) -> None:
        super().__init__(specs, **options)
        self._args = args
        self._begin_as_text()

    def decide(self, reply: Reply) -> Decision:
        """Return a Final for any reply: with its text, with the answer of its action, or without a text."""
        plain = read_plain(reply.text, self._names, is_expected=self._habit.is_expected)
        self._habit.note(is_unopened=plain.is_unopened)
        found, warnings = answer_in(plain, self._names)
        text = str(found.get("answer", ""))
        args = {**self._args, "answer": text} if text.strip() else dict(self._args)
        form = ReplyForm(form="text")
        return self._answer(reply, plain, args, has_text=bool(text.strip()), warnings=warnings, form=form)


def read_task(args: Mapping[str, Any], tools: Mapping[str, ToolSpec]) -> dict[str, Any] | str:
    """Return the arguments of a spawn as the log holds them, or a complaint. `tools`: those a job may call."""
    if unknown := [key for key in args if key not in TaskArgs.model_fields]:
        known = ", ".join(TaskArgs.model_fields)
        return f"{unknown[0][:80]!r} is no field of task: leave it out. The fields are: {known}."
    try:
        task = TaskArgs.model_validate(args)
    except ValidationError as error:
        return f"The arguments of task do not fit: {describe(error, limit=None)}. {_MODES}."
    if complaint := _agent(task, tools) or _identity(task) or (_of_job(task, tools) if task.mode == "job" else ""):
        return complaint
    if task.mode == "subagent":
        if task.query is None or not task.query.strip():
            return '"query" is missing: a subagent needs the question that it is to answer.'
        if (size := len(task.query.encode())) > MAX_INLINE_BYTES:
            return f'"query" has {size:,} bytes, and at most {MAX_INLINE_BYTES:,} are taken: shorten it.'
    read = task.model_dump(exclude_none=True, exclude_defaults=True)
    return read | ({"tool": tools[task.tool].name} if task.tool is not None else {})


def in_one_group(tasks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tasks of one reply so that those of one label make one group: only its last one may seal it.

    That is the one that says so for all: its run waits for the group if any of them asked for that.
    """
    last = {task.get("group"): number for number, task in enumerate(tasks)}
    found = []
    for number, task in enumerate(tasks):
        group = task.get("group")
        sealing = {key: True for each in tasks for key in _SEALING if each.get("group") == group and each.get(key)}
        kept = {key: value for key, value in task.items() if key not in _SEALING}
        found.append(task if group is None else kept | (sealing if number == last[group] else {}))
    return found


def _agent(task: TaskArgs, tools: Mapping[str, ToolSpec]) -> str:
    spec = tools.get(RUN_AGENT)
    known = spec.input_schema["properties"]["agent"]["enum"] if isinstance(spec, AgentTool) else []
    if task.agent is None or (task.agent in known and task.mode == "subagent"):
        return ""
    return f'"agent" is for a subagent, and one of: {", ".join(known) or "none, so leave it out"}.'


def _identity(task: TaskArgs) -> str:
    if task.group is not None and task.group_id is not None:
        return (
            'Both "group" and "group_id" are given. Keep "group" for a group of this turn, by its label, or "group_id" '
            "for that very group, and leave the other one out."
        )
    for field in ("name", "group", "group_id"):
        text = getattr(task, field)
        if text is not None and (not text.strip() or len(text) > HINT_LIMIT):
            return f'"{field}" must have 1 to {HINT_LIMIT} characters: shorten it, or leave it out.'
    return "" if task.mode is not None else f"The task has no mode: {_MODES}."


def _of_job(task: TaskArgs, tools: Mapping[str, ToolSpec]) -> str:
    if task.tool is None:
        return '"tool" is missing: a job needs the name of the tool that it calls, and its arguments in "tool_args".'
    tools = {name: spec for name, spec in tools.items() if not isinstance(spec, AgentTool)}
    if (spec := tools.get(task.tool)) is None:
        known = ", ".join(sorted(tools)[:MAX_TOOLS_LISTED]) or "none, so only a subagent can be started"
        return f'"tool" names no tool of this run: {task.tool[:80]!r}. The tools are: {known}.'
    try:
        faults = complaints(task.tool_args, spec.input_schema)
    except InvalidSchema as error:
        return f'"tool": {task.tool!r} cannot be used: its input schema is invalid ({error}).'
    return f'"tool_args" does not fit the schema of {task.tool!r}: {"; ".join(faults)}.' if faults else ""
