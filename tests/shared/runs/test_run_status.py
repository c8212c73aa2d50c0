"""The status of a run from what is known of it."""

import pytest

from contracts.runs.events import Cancelled, Done, Error, Terminal
from contracts.runs.payload import FinalPayload
from contracts.runs.requests import RunRequested
from services.shared.runs.waiting import MAX_QUERY_CHARACTERS, status_of

REQUEST = RunRequested(run_id="0" * 32, tenant="t", requested_at=1, trace_id="0" * 32, query="q" * 1000, agent="a")
PAYLOAD = FinalPayload(raw_answer="")
ENDS: list[tuple[Terminal, str, str, str | None]] = [
    (Done(raw_answer="", reason="budget_exhausted"), "done", "budget_exhausted", None),
    (Error(error="e", code="model_failed", trace_id="0" * 32, payload=PAYLOAD), "error", "error", "model_failed"),
    (Cancelled(reason="enough", payload=PAYLOAD), "cancelled", "cancelled", None),
]


@pytest.mark.parametrize(("end", "status", "reason", "code"), ENDS)
def test_an_ended_run_has_the_status_of_its_end(end: Terminal, status: str, reason: str, code: str | None) -> None:
    """With the reason, and the code of an error."""
    found = status_of(REQUEST.run_id, REQUEST, end, state="running", started_at=2, ended_at=3)
    assert (found.status, found.reason, found.code, found.ended_at) == (status, reason, code, 3)
    assert (found.agent, len(found.query)) == ("a", MAX_QUERY_CHARACTERS)


def test_the_status_of_a_task_names_the_run_that_spawned_it() -> None:
    """And why it exists."""
    request = REQUEST.model_copy(update={"cause": "job", "parent": "2" * 32})
    found = status_of(request.run_id, request, None, state="running", started_at=None, ended_at=None)
    assert (found.cause, found.parent) == ("job", "2" * 32)
