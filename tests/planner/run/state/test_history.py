"""What calls bring for the payload: in step order, and nothing of it lost."""

from typing import Any

from contracts.runs.events import Observed, PlannedCall
from contracts.runs.payload import Source, TaskFindings
from services.planner.run.state.history import Collected


def observed(call_id: str, tool: str = "draw", **artifacts: Any) -> Observed:
    sources = [Source(title=call_id)]
    return Observed(
        call_id=call_id,
        tool=tool,
        status="succeeded",
        observation="x" * 1000,
        artifacts=artifacts,
        artifact_types=dict.fromkeys(artifacts, f"of {call_id}"),
        sources=sources,
    )


def test_outcomes_stand_in_the_order_of_their_calls() -> None:
    """In any order of finishing; the join comes after its branches, the next step after both."""
    collected = Collected()
    collected.expect([PlannedCall(call_id=f"1-{number}", tool="draw") for number in (1, 2, 3)])
    for call_id in ("1-3", "1-1"):
        collected.take(observed(call_id, chart=call_id))
    before = collected.copy()
    collected.take(observed("1-2", chart="1-2"))
    collected.expect([PlannedCall(call_id="1-join", tool="draw")])
    collected.take(observed("1-join", "other", chart="join"))

    assert [source.title for source in collected.sources()] == ["1-1", "1-2", "1-3", "1-join"]
    assert [source.title for source in before.sources()] == ["1-1", "1-3"]
    found, types, warnings = collected.artifacts()
    assert found == {
        "draw": {"chart": "1-3"},
        "other": {"chart": "join"},
        "draw#1-1": {"chart": "1-1"},
        "draw#1-2": {"chart": "1-2"},
    }
    assert types == {"draw": {"chart": "of 1-3"}, "other": {"chart": "of 1-join"}}
    assert warnings == [
        (
            "draw made an artifact of the same name several times: the last one counts, "
            "earlier ones are under draw#1-1, draw#1-2"
        )
    ]


def test_what_tasks_made_takes_the_place_of_nothing() -> None:
    """It stands under the tool, or beside what the tool has there already."""
    collected = Collected()
    found = {"draw#t1": {"chart": 1}, "draw#t2": {"chart": 2}, "scan#t2": {"page": 3}}
    types = {"draw#t2": {"chart": "line"}, "scan#t2": {"page": "pdf"}}
    collected.take_tasks(TaskFindings(artifacts=found, artifact_types=types, whole="a" * 32))
    assert collected.artifacts()[0] == {"draw": {"chart": 1}, "draw#t2": {"chart": 2}, "scan": {"page": 3}}
    assert collected.artifacts()[1] == {"draw#t2": {"chart": "line"}, "scan": {"page": "pdf"}}
    assert collected.copy().readable == {"a" * 32}
