"""Completes a record: the last words of a model's reply come first, and a terminal event names the stream's end. Pure.

Rule 1: the last words stand before the facts that follow from them, so sequence order is reading order.
Rule 2: only the handling that owns the model call appends them. If another record is stored first, the handling appends
them with its next record; if its call is superseded, with none.
"""

from contracts.runs.events import Terminal
from services.planner.run.commands import Handling
from services.planner.run.state.run import Event, Run
from services.planner.run.turn.decision import Decision


def completed(run: Run, handling: Handling, events: list[Event]) -> list[Event]:
    """Return the events to append, the reply's last words first."""
    progress = handling.progress
    decision = progress.decision if run.is_asked_by(handling.incoming.attempt_token) else None
    end = events[-1] if events else None
    if isinstance(end, Terminal):
        stored = progress.shown_seq if decision is None else decision.stream_seq
        events = [*events[:-1], end.model_copy(update={"last_stream_seq": _last_stream_seq(run, stored, decision)})]
    return events if decision is None else [*decision.last_words, *events]


def _last_stream_seq(run: Run, stored: int | None, decision: Decision | None) -> int | None:
    """Return the sequence of the newest record on the run's stream; 0: there is none; None: not known.

    `stored`: the newest sequence of this turn, or of its newest attempt where there is a decision. Records of tools are
    older than the turn.
    """
    if stored:
        return stored
    if run.turn == 0:
        return 0
    is_first_attempt = decision is None or (run.asked is not None and run.asked.attempt == 1)
    return 0 if stored == 0 and run.turn == 1 and is_first_attempt else None
