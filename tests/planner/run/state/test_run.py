"""What the state of a run says of itself."""

from contracts.runs.events import Queued
from contracts.runs.requests import RunRequested
from services.planner.run.state.run import Run

REQUEST = RunRequested(run_id="a" * 32, tenant="acme", requested_at=1, trace_id="t", query="q")


def test_a_run_that_waits_for_people_or_for_its_turn_is_at_rest() -> None:
    """And no other one: what goes on needs its state soon again."""
    queued = Queued(request=REQUEST, queue_until=10)
    assert Run(waits_since=5).is_at_rest
    assert Run(queued=queued).is_at_rest
    assert not Run().is_at_rest
