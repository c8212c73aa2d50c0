"""Why a run exists, and what follows from that: one row for each cause. Pure data."""

from dataclasses import dataclass

from contracts.runs.requests import RunCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What holds for the runs of a cause. In a session, only runs with a turn read and make its conversation."""

    has_turn: bool
    """It takes a turn in its session, waits for it, and keeps the session's memory."""
    asks_model: bool = True
    """False: it makes the one call that its request names."""
    may_spawn: bool = True
    """It may start background tasks, where its agent lets it."""
    is_callers_choice: bool = False
    """A person wrote its question and chose its model, so that rules on texts and names of models apply to both."""
    gives_way: bool = False
    """It waits until no run of a user waits for a turn."""
    may_call_hidden: bool = False
    """A person or program named its one call, so the tool may be one that no model is offered."""
    counts_for_key: bool = True
    """It is one of the open runs of its API key, of which a key may have only so many."""


CAUSES: dict[RunCause, Traits] = {
    "user": Traits(has_turn=True, is_callers_choice=True),
    "summary": Traits(has_turn=False, may_spawn=False, counts_for_key=False),
    "task": Traits(has_turn=False),
    "job": Traits(has_turn=False, asks_model=False, may_spawn=False),
    "call": Traits(has_turn=False, asks_model=False, may_spawn=False, may_call_hidden=True),
    "report": Traits(has_turn=True, gives_way=True),
}
