"""What the demo model decides from, taken from the facts of a request. It reads no prompt text.

Only two values come from the messages of a request: the size of an image, since only the loaded message has the bytes,
and the tools that a refused reply of this model named.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from contracts.runs.events import Observed, PlannedCall, Repaired
from contracts.runs.pages import PageView
from contracts.tools.messages import ToolSpec
from runwire.plans import error_line
from services.planner.conversation.catalogue import shown_name
from services.planner.models.types import Facts, ModelRequest
from services.planner.run.calls.tasks import SPAWN
from services.planner.run.state.history import Added, Conversation, Executed, Outcomes, PastTurn, Question
from services.planner.run.state.people import AddedInputs
from services.planner.sessions.tasks.reports import REPORTED_TASKS

MAX_DESCRIPTION_CHARACTERS = 1_000
MAX_TAGS = 12


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `name`: the one that a reply uses; `result`: the schema of its result."""

    name: str
    description: str
    args: dict[str, Any]
    tags: tuple[str, ...] = ()
    writes: bool = False
    result: dict[str, Any] | None = None

    @staticmethod
    def of(spec: ToolSpec) -> "Tool":
        """Return a tool of the run."""
        return Tool(
            shown_name(spec.name),
            spec.description[:MAX_DESCRIPTION_CHARACTERS],
            spec.input_schema,
            tuple(spec.tags[:MAX_TAGS]),
            spec.side_effects in {"write", "external"},
            spec.output_schema,
        )

    @property
    def properties(self) -> dict[str, Any]:
        """Its arguments by name."""
        properties = self.args.get("properties")
        return properties if isinstance(properties, dict) else {}

    @property
    def texts(self) -> set[str]:
        """The names of those that may be texts."""
        typed = {
            name: inner.get("type", "string") for name, inner in self.properties.items() if isinstance(inner, dict)
        }
        return {name for name, kind in typed.items() if kind in ("string", ["string", "null"])}


@dataclass(frozen=True, slots=True)
class Tried:
    """A tool call and its outcome. `reason` is set if it failed."""

    tool: str
    args: dict[str, Any]
    observation: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a decision. `tried`: the steps so far, each with its calls."""

    question: str = ""
    tools: tuple[Tool, ...] = ()
    asked_on: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    tried: tuple[tuple[Tried, ...], ...] = ()
    must_answer: bool = False
    text_alone: bool = False
    legacy: bool = False
    summarises: bool = False
    """The run is to summarise the turns in its context."""
    tasks: bool = False
    """The run may spawn background tasks."""
    reported: list[dict[str, Any]] = field(default_factory=list)
    """The run is to tell what came of these tasks."""
    past: tuple[PastTurn, ...] = ()
    """Earlier turns of the conversation, oldest first."""
    images: tuple[str, ...] = ()
    """Type and size of each image that came with the question."""
    page: PageView | None = None
    """The page of a chat turn."""
    stage: str = ""
    """Of the strategy `planned`: `plan` or `respond`."""
    rejected: tuple[str, ...] = ()
    """The errors of the plan; empty: it has none."""
    not_executed: tuple[str, ...] = ()
    """Tools of calls that were not executed, since an earlier one failed."""

    @property
    def spawned(self) -> list[Tried]:
        """The background tasks that the run has spawned."""
        return [tried for step in self.tried for tried in step if tried.tool == shown_name(SPAWN)]


def situation_of(request: ModelRequest) -> Situation:
    """Return the situation of a request. One without facts, such as a triage, has no question and no tools."""
    facts = request.facts
    question = next((item for item in facts.history if isinstance(item, Question)), None) if facts is not None else None
    if facts is None or question is None:
        return Situation()
    asked = question.request
    added = [item.added for item in facts.history if isinstance(item, Added)]
    executed = next((item for item in reversed(facts.history) if isinstance(item, Executed)), None)
    plan = executed.step.plan if executed is not None else None
    rejected, left = [], []
    if executed is not None and plan is not None:
        rejected = [error_line(error, plan.calls) for error in executed.step.errors]
        left = plan.calls[len(executed.observed) :] if executed.end is not None else []
    return Situation(
        question=AddedInputs(read=added).question(asked.query).strip(),
        tools=tuple(map(Tool.of, facts.tools)),
        asked_on=datetime.fromtimestamp(asked.requested_at / 1000, UTC).date().isoformat(),
        context=asked.llm_context,
        tried=tuple(_tried(facts)),
        must_answer=facts.steps_left <= 1 or facts.tool_calls_left == 0,
        text_alone=facts.text_alone,
        legacy=facts.legacy,
        summarises=asked.cause == "summary",
        tasks=facts.tasks_allowed,
        reported=asked.llm_context.get(REPORTED_TASKS, []) if asked.cause == "report" else [],
        past=next((item.turns for item in facts.history if isinstance(item, Conversation)), ()),
        images=tuple(_images(request)) if question.images else (),
        page=facts.page,
        stage=facts.stage,
        rejected=tuple(rejected),
        not_executed=tuple(call.tool_name for call in left),
    )


def _tried(facts: Facts) -> Iterator[tuple[Tried, ...]]:
    for item in facts.history:
        if isinstance(item, Outcomes):
            calls = {call.call_id: call for call in item.step.calls}
            order = list(calls)
            observed = sorted(
                item.observed, key=lambda each: order.index(each.call_id) if each.call_id in calls else len(order)
            )
            yield tuple(_outcome(each, calls.get(each.call_id)) for each in observed)
        elif isinstance(item, Executed) and item.step.plan is not None:
            yield tuple(
                _outcome(each, PlannedCall(call_id=each.call_id, tool=call.tool_name, args=call.arguments))
                for each, call in zip(item.observed, item.step.plan.calls, strict=False)
            )
    for repaired in facts.rejected:
        reason = repaired.reason.strip().partition("\n")[0]
        if refused := tuple(Tried(tool, args, reason=reason) for tool, args in _calls(repaired)):
            yield refused


def _outcome(observed: Observed, call: PlannedCall | None) -> Tried:
    """Return a call with the text that a tool gave the model, else with what the model is shown of the result."""
    tool, args, failure = shown_name(observed.tool), call.args if call is not None else {}, observed.failure
    if observed.status != "succeeded":
        reason = (failure.reason or failure.code) if failure is not None else "no reason given"
        return Tried(tool, args, observed.observation, reason=reason)
    if observed.content is None and observed.responded is not None:
        return Tried(tool, args, f"{observed.tool} made the artifact {observed.responded.artifact_id}.")
    return Tried(tool, args, observed.observation if observed.content is None else observed.content)


def _calls(repaired: Repaired) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a refused reply, which this model wrote itself: name and arguments of each."""
    try:
        action = orjson.loads(repaired.reply)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(action, dict):
        return []
    given = action.get("args")
    args: dict[str, Any] = given if isinstance(given, dict) else {}
    steps = action.get("plan") or (args.get("steps") if action.get("next_node") == "plan" else None)
    if isinstance(steps, list):
        return [(str(step.get("node")), step.get("args") or {}) for step in steps if isinstance(step, dict)]
    node = action.get("next_node")
    return [(node, args)] if isinstance(node, str) and node != "final_response" else []


def _images(request: ModelRequest) -> Iterator[str]:
    # A message with images is an object.
    objects = (piece for piece in request.messages.pieces if not isinstance(piece, bytes))
    content = next((message["content"] for message in objects if message["role"] == "user"), None)
    for part in content if isinstance(content, list) else ():
        head, _, body = part.get("image_url", {}).get("url", "").partition(";base64,")
        if body:
            yield f"{head.removeprefix('data:')} of {len(body) * 3 // 4 - body[-2:].count('=')} bytes"
