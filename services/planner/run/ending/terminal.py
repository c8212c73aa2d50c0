"""How a run ends: the terminal facts, each with a `FinalPayload`, and what the session is told of them. Pure.

Rule 1: the last words of a model's reply stand before the facts that follow from it, so sequence order is reading
order. Only the handling that owns the model call appends them. If another record is stored first, the handling appends
them with its next record; if its call is superseded, with none.
Rule 2: a terminal event names the last record of the run's stream.
"""

from typing import Any

import orjson

from contracts.runs.events import (
    Cancelled,
    Chunk,
    Done,
    Error,
    Observed,
    Paused,
    PayloadProposed,
    Repaired,
    RunEvent,
    Step,
    Terminal,
)
from contracts.runs.payload import CALL_RESULT, NO_ANSWER, FinalPayload, Reason
from contracts.runs.requests import RunRequested
from contracts.sessions.proposals import APPLY_TOOL
from contracts.sessions.records import MAX_TURN_BYTES, RunEnded, SessionRunEnded
from contracts.wire.base import MAX_RECORD_BYTES
from contracts.wire.faults import Fault
from contracts.wire.records import Record
from services.planner.run.commands import Handling
from services.planner.run.ending import payload
from services.planner.run.state import task_budgets
from services.planner.run.state.run import Event, Run
from services.shared.redaction.json_values import CUT_MARK, cut
from services.shared.sessions.proposals import report_of

MAX_ANSWER_BYTES = 600_000
"""Longest answer, in bytes of JSON. The rest of the record is for the other fields."""
MAX_SHOWN_ANSWER_BYTES = 430_000
"""Longest answer if a chunk in the same record repeats it."""
MAX_BYTES_PER_CHARACTER = 6
ELEMENTS = frozenset({"suggested_values", "client_actions", "custom_payload"})
"""Keys in `extra` of what may be a whole reply, without any text."""
_UNANSWERED: frozenset[Reason] = frozenset({"cancelled", "error"})
OTHER_EVENTS_BYTES = 100_000
"""Bytes reserved for the shortened steps in the record that ends a run."""
TOO_LARGE = "larger than a record may be"


def _payload(
    run: Run, reason: Reason, args: dict[str, Any], warnings: tuple[str, ...] = (), score: float | None = None
) -> FinalPayload:
    artifacts, types, superseded = run.collected.artifacts()
    state = run.strategy_state
    found = payload.assemble(
        args,
        last_observation=run.last_observation,
        artifacts=artifacts,
        artifact_types=types,
        sources=run.collected.sources(),
        reason=reason,
        warnings=(*run.warnings, *superseded, *_of_limits(run), *warnings),
        reflection_score=score,
    )
    if state.has_parts and not args.get("answer", "") and (reason in _UNANSWERED or ELEMENTS & found.extra.keys()):
        found = found.model_copy(update={"raw_answer": ""})
    return found.model_copy(update=_with_answer_cut(found, MAX_ANSWER_BYTES))


def _with_answer_cut(payload: FinalPayload, limit: int) -> dict[str, Any]:
    """The fields that change where the answer is cut to `limit` bytes; none where it fits."""
    answer = _cut(payload.raw_answer, limit)
    if answer == payload.raw_answer:
        return {}
    warning = f"the answer was cut: it had {len(payload.raw_answer):,} characters"
    return {"raw_answer": answer, "warnings": [*payload.warnings, warning]}


def _of_limits(run: Run) -> list[str]:
    """Return warnings about budgets that could not be checked, and about turns that the memory had no room for."""
    found: list[str] = []
    said, memory = run.conversation, run.started.memory if run.started is not None else None
    if run.usage.cost_usd is None and run.usage.model_calls:
        of_key = run.request.key_budget.max_cost_usd if run.request is not None and run.request.key_budget else None
        limits = {"max_cost_usd": run.limits.max_cost_usd, "the API key's max_cost_usd_per_day": of_key}
        found = [
            f"{name} of {limit:g} could not be checked: a model of this run has no known price"
            for name, limit in limits.items()
            if limit is not None
        ]
    if said is not None and memory is not None and said.shortened:
        limit = f"memory.max_tokens is {memory.max_tokens:,}"
        found.append(f"earlier turns of the conversation were cut or left out: {said.shortened} ({limit})")
    return found


def _cut(answer: str, limit: int = MAX_ANSWER_BYTES) -> str:
    """As much of an answer as `limit` bytes of a record can hold. What counts is its size as JSON."""
    if len(answer) <= limit // MAX_BYTES_PER_CHARACTER:
        return answer
    while (size := len(orjson.dumps(answer))) > limit:
        answer = answer[: int(len(answer) * limit / size * 0.99)]
    return answer


def answered(run: Run, args: dict[str, Any], score: float | None = None) -> Done:
    """The model ended the run: `args` of `final_response`. `score` is the critique's, 0..1, where there was one.

    Where neither the arguments nor the tool results hold an answer, the reason is `no_path`. Where the deadline has
    halted calls before it, it is `budget_exhausted`.
    """
    done = _done(run, "budget_exhausted" if run.strategy_state.is_late else "answer_complete", args, (), score)
    if done.raw_answer != NO_ANSWER:
        return done
    return done.model_copy(
        update={"reason": "no_path", "warnings": [*done.warnings, "the model's final response held no answer"]}
    )


def budget_exhausted(run: Run, budget: str, args: dict[str, Any] | None = None) -> Done:
    """A budget is exhausted; `budget` names it with its limit. The payload holds all results so far.

    `args`: those of an unfinished answer; None: the ones that the run keeps.
    """
    unfinished = run.final_args or run.judged or given_answer(run) if args is None else args
    return _done(run, "budget_exhausted", unfinished, (f"budget exhausted: {budget}",))


def given_answer(run: Run) -> dict[str, Any]:
    """Return the answer after which the run went on, as arguments of a final response; that of all parts so far."""
    if (parts := run.strategy_state.final_args(run, run.shown)) is not None:
        return parts
    answer = run.step.answer if run.step is not None else None
    return {} if answer is None else {"answer": answer}


def no_path(run: Run, complaint: str) -> Done:
    """No attempt of the model gave a valid action; `complaint` is the last reason."""
    args = run.strategy_state.final_args(run) or {}
    return _done(run, "no_path", args, (f"the model's replies were no usable actions: {complaint}",))


def _done(
    run: Run, reason: Reason, args: dict[str, Any], warnings: tuple[str, ...], score: float | None = None
) -> Done:
    payload = _payload(run, reason, args, warnings, score)
    return Done(**{name: getattr(payload, name) for name in FinalPayload.model_fields}, reason=reason, usage=run.usage)


def shown(run: Run, events: list[Event]) -> list[Event]:
    """Insert the text of a forced end as a chunk of the same record, under a turn newer than all streamed ones."""
    end = events[-1] if events else None
    begins_answer = any(
        isinstance(event, Step) and event.status == "started" and not event.calls and event.plan is None
        for event in events
    )
    if not isinstance(end, Done) or begins_answer or not end.raw_answer or run.strategy_state.has_parts:
        return events
    end = end.model_copy(update=_with_answer_cut(end, MAX_SHOWN_ANSWER_BYTES))
    return [*events[:-1], Chunk(seq=0, text=end.raw_answer, done=True, action_seq=run.turn + 1, attempt=1), end]


def _with_last_chunk(run: Run, handling: Handling, events: list[Event]) -> list[Event]:
    """Insert the last chunk of a message of parts, and its payload.

    The chunk stands where the answer of the run and the text that was shown part: so the text of all chunks is the
    answer, whatever listeners have received.
    """
    end, asked, decision = events[-1], run.asked, handling.own_decision(run)
    if asked is not None and decision is not None and decision.said is not None:
        numbers = {"part": asked.part, "attempt": asked.attempt, "seq": decision.chunks}
        before = decision.message
    else:
        numbers = {"part": run.turn, "attempt": 1, "seq": 0}
        parts = run.strategy_state.final_args(run, run.shown, is_whole=False) or {}
        before = str(parts.get("answer", ""))
    if isinstance(end, Done) and len(end.raw_answer) - len(before) > MAX_SHOWN_ANSWER_BYTES // MAX_BYTES_PER_CHARACTER:
        end = end.model_copy(update=_with_answer_cut(end, MAX_SHOWN_ANSWER_BYTES))
    answer = end.raw_answer if isinstance(end, Done) else end.payload.raw_answer if isinstance(end, Terminal) else ""
    offset = len(before)
    if not answer.startswith(before):
        pairs = enumerate(zip(before, answer, strict=False))
        offset = next((n for n, (was, now) in pairs if was != now), min(len(before), len(answer)))
    chunk = Chunk(action_seq=1, offset=offset, text=answer[offset:], done=True, **numbers)
    return [*events[:-1], *([chunk] if offset or answer or run.turn else []), *_proposed(run, end), end]


def _proposed(run: Run, end: Event) -> list[PayloadProposed]:
    """Return the payloads that count in this turn, the one of its text last."""
    extra = end.extra if isinstance(end, Done) and run.started is not None else {}
    found = extra.get("payloads") or ([extra["custom_payload"]] if "custom_payload" in extra else [])
    view, proposed = run.started.page_view if run.started is not None else None, []
    for each in found:
        is_new = each["type"] == "schema_proposal" and each["data"].get("mode") == "create"
        of_table = None if is_new else view
        proposed.append(
            PayloadProposed(
                payload_id=each["id"],
                kind=each["type"],
                source=each.get("source", "llm"),
                summary=each["summary"],
                data=each["data"],
                table_id=of_table.page.table_id if of_table is not None else None,
                base_version=of_table.base_version if of_table is not None else None,
            )
        )
    return proposed


def failed(run: Run, fault: Fault, trace_id: str = "", *, refusal: str = "") -> Error:
    """A fault ended the run. `refusal`: what the model says in its refusal to answer; it is the answer."""
    trace = run.request.trace_id if run.request is not None else trace_id
    payload = _payload(run, "error", {"answer": refusal} if refusal else _shown_args(run), (fault.reason,))
    payload = payload.model_copy(update={"route": "refusal"}) if refusal else payload
    return Error(
        error=fault.reason, code=fault.tool_code or fault.code, trace_id=trace, payload=payload, usage=run.usage
    )


def cancelled(run: Run, reason: str) -> Cancelled:
    """A person or program cancelled the run. Legal even as its first fact."""
    warnings = ("cancelled",) if run.strategy_state.has_parts else ()
    payload = _payload(run, "cancelled", _shown_args(run) or given_answer(run), warnings)
    return Cancelled(reason=reason, payload=payload, usage=run.usage)


def _shown_args(run: Run) -> dict[str, Any]:
    """Return what listeners have of the answer, as arguments of a final response; empty where that is none."""
    parts = run.strategy_state.final_args(run, run.shown, is_whole=False)
    return ({"answer": run.shown} if run.shown.strip() else {}) if parts is None else parts


def lacks_shown(run: Run, handling: Handling, events: list[Event]) -> bool:
    """Whether these events end a turn that has no decision, and what was shown of its answer is not read yet.

    It stays where no other text follows it: after an error, a cancel, and in one message of parts.
    """
    end = events[-1] if events else None
    if not run.undecided or handling.progress.shown is not None or not isinstance(end, Terminal):
        return False
    is_kept = not isinstance(end, Done) or run.strategy_state.has_parts
    return is_kept and not any(isinstance(event, Step) for event in events)


def fitting(record: Record) -> tuple[Record, bytes]:
    """Return the record in a size that can be stored.

    Outcomes that are too large become failures. Optional fields of a payload are left out with a warning.
    """
    data = record.model_dump_json().encode()
    if len(data) <= MAX_RECORD_BYTES:
        return record, data
    # A chunk stays: the text of an end is shown in chunks, whatever else is left out.
    room = (
        MAX_RECORD_BYTES
        - OTHER_EVENTS_BYTES
        - sum(len(event.model_dump_json().encode()) for event in record.events if isinstance(event, Chunk))
    )
    smaller = record.model_copy(update={"events": [_fitting(event, room) for event in record.events]})
    return smaller, smaller.model_dump_json().encode()


def _fitting(event: RunEvent, room: int) -> RunEvent:
    if isinstance(event, Observed):
        fault = Fault(code="result_too_large", reason=f"the result is {TOO_LARGE}")
        return event.model_copy(
            update={"status": "failed", "observation": None, "failure": fault, "artifacts": {}, "sources": []}
        )
    if isinstance(event, Terminal):
        return with_payload(event, _smaller(event if isinstance(event, Done) else event.payload, room))
    if isinstance(event, Step):
        return event.model_copy(update={"reasoning": None, "thought": None, "warnings": [], "opaque": None})
    if isinstance(event, Paused) and event.revision == 1:
        return event.model_copy(update={"arguments": None})  # The step of the call holds them.
    if isinstance(event, Repaired):
        return event.model_copy(update={"args": None if event.args is None else {}})
    return event


def with_payload(end: Terminal, changes: dict[str, Any]) -> Terminal:
    """Return the end of a run with changes in its payload."""
    if isinstance(end, Done):
        return end.model_copy(update=changes)
    return end.model_copy(update={"payload": end.payload.model_copy(update=changes)})


def _smaller(payload: FinalPayload, room: int) -> dict[str, Any]:
    """Leave out what may be large, the artifacts first, until `room` bytes hold the rest."""
    smaller: dict[str, Any] = {}
    for name in ("artifacts", "artifact_types", "extra", "sources", "suggested_actions", "warnings"):
        if not (value := getattr(payload, name)):
            continue
        smaller[name] = type(value)()
        said = [*smaller.get("warnings", payload.warnings), f"{name} left out: {TOO_LARGE}"]
        if len(payload.model_copy(update={**smaller, "warnings": said}).model_dump_json().encode()) <= room:
            return {**smaller, "warnings": said}
    return {**smaller, "warnings": [f"everything but the answer was left out: {TOO_LARGE}"]}


def completed(run: Run, handling: Handling, events: list[Event]) -> list[Event]:
    """Return the events to append, the reply's last words first."""
    progress, decision = handling.progress, handling.own_decision(run)
    end = events[-1] if events else None
    if isinstance(end, Terminal):
        # The newest sequence of this turn, or of its newest attempt where there is a decision. 0: the run's stream has
        # no record; None: not known. Records of tools are older than the turn.
        stored = progress.shown_seq if decision is None else decision.stream_seq
        is_first = run.turn == 1 and (decision is None or (run.asked is not None and run.asked.attempt == 1))
        has_none = run.turn == 0 or (stored == 0 and is_first)
        events = [*events[:-1], end.model_copy(update={"last_stream_seq": stored or (0 if has_none else None)})]
        events = _with_last_chunk(run, handling, events) if run.strategy_state.has_parts else events
    return events if decision is None else [*decision.last_words, *events]


def ended(run_id: str, run: Run, request: RunRequested | None, max_bytes: int = MAX_TURN_BYTES) -> RunEnded | None:
    """Return how a run ended; None for an open run.

    `request`: None if the log does not hold it any more. `max_bytes`: of the question, the answer and all inputs each.
    """
    if (end := run.terminal) is None:
        return None
    question = request.query if request is not None else ""
    answer = end.raw_answer if isinstance(end, Done) else end.payload.raw_answer if isinstance(end, Cancelled) else ""
    answer = "" if answer == NO_ANSWER else answer
    inputs = [added.text for added in run.inputs.read if added.text]
    kept = cut(question, max_bytes), _within(inputs, max_bytes), cut(answer, max_bytes)
    return RunEnded(
        run=run_id,
        outcome=end.type,
        code=end.code if isinstance(end, Error) else None,
        question=kept[0],
        inputs=kept[1],
        answer=kept[2],
        is_cut=kept != (question, inputs, answer),
        attached=[image.artifact_id for image in request.images] if request is not None else [],
        requested_at=request.requested_at if request is not None else 0,
        usage=end.usage,
        payloads=run.payloads,
    )


def _within(texts: list[str], left: int) -> list[str]:
    """Return the texts, the last one cut, as far as they have at most `left` bytes together."""
    kept: list[str] = []
    for text in texts:
        if left <= len(CUT_MARK.encode()):
            break
        kept.append(cut(text, left))
        left -= len(kept[-1].encode("utf-8", "surrogatepass"))
    return kept


def end_message(run_id: str, run: Run, request: RunRequested | None) -> SessionRunEnded | None:
    """Return the message about its end from a run to its session; None for an open run."""
    if (fact := ended(run_id, run, request)) is None:
        return None
    if request is None:
        return SessionRunEnded(ended=fact)
    is_apply = request.job is not None and request.job.tool == APPLY_TOOL
    return SessionRunEnded(
        ended=fact,
        cause=request.cause,
        through=request.through,
        model=run.model,
        memory=run.started.memory if run.started is not None else None,
        reason=run.terminal.reason if isinstance(run.terminal, Done) else None,
        key_id=request.key_id,
        key_budget=request.key_budget,
        set_aside=task_budgets.taken(run),
        report=report_of(run.terminal.extra.get(CALL_RESULT)) if is_apply and isinstance(run.terminal, Done) else None,
    )
