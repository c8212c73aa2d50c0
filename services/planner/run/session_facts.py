"""The facts about a run that its session receives: how it ended, with question and answer. Pure."""

from contracts.runs.events import Cancelled, Done, Error
from contracts.runs.requests import RunRequested
from contracts.sessions.records import MAX_TURN_BYTES, RunEnded, SessionRunEnded
from services.planner.run.calls import task_budgets
from services.planner.run.ending import payload
from services.planner.run.state.run import Run
from services.shared.redaction.json_values import CUT_MARK, cut


def ended(run_id: str, run: Run, request: RunRequested | None) -> RunEnded | None:
    """Return how a run ended; None for an open run. `request`: None if the log does not hold it any more."""
    end = run.terminal
    if end is None:
        return None
    question = request.query if request is not None else ""
    return RunEnded(
        run=run_id,
        outcome=end.type,
        code=end.code if isinstance(end, Error) else None,
        question=cut(question, MAX_TURN_BYTES),
        inputs=_within([added.text for added in run.inputs.read if added.text]),
        answer=cut(_answer(end), MAX_TURN_BYTES),
        attached=[image.artifact_id for image in request.images] if request is not None else [],
        requested_at=request.requested_at if request is not None else 0,
        usage=end.usage,
    )


def _within(texts: list[str]) -> list[str]:
    """Return the texts, the last one cut, as far as they have at most `MAX_TURN_BYTES` together."""
    kept: list[str] = []
    left = MAX_TURN_BYTES
    for text in texts:
        if left <= len(CUT_MARK.encode()):
            break
        kept.append(cut(text, left))
        left -= len(kept[-1].encode("utf-8", "surrogatepass"))
    return kept


def end_message(run_id: str, run: Run, request: RunRequested | None) -> SessionRunEnded | None:
    """Return the message about its end from a run to its session; None for an open run."""
    fact = ended(run_id, run, request)
    if fact is None:
        return None
    if request is None:
        return SessionRunEnded(ended=fact)
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
    )


def _answer(end: Done | Error | Cancelled) -> str:
    if isinstance(end, Error):
        return ""
    text = end.raw_answer if isinstance(end, Done) else end.payload.raw_answer
    return "" if text == payload.NO_ANSWER else text
