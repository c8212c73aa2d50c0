"""Every ending fits a record, whatever is in it."""

import pytest

from contracts.runs.events import Chunk, Done, RunStarted, Step
from contracts.runs.payload import Source
from contracts.runs.requests import RunLimits, RunRequested
from contracts.wire.records import Record
from services.planner.run.ending import terminal
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run

MB = 1 << 20


def run() -> Run:
    """A run that has begun."""
    request = RunRequested(run_id="0" * 32, tenant="t", requested_at=0, trace_id="0", query="?")
    found = Run()
    fold(found, 1, 0, [RunStarted(run_id="0" * 32, tenant="t", request=request, limits=RunLimits())])
    return found


@pytest.mark.parametrize("unit", ["word ", "a\n", '"', "\x01", "é", "😀"])
def test_an_answer_is_cut_to_what_a_record_holds(unit: str) -> None:
    """Characters take up to six bytes; the beginning stays, and a warning says how long it was."""
    answer = unit * (2 * MB // len(unit))
    done = terminal.answered(run(), {"answer": answer})
    assert answer.startswith(done.raw_answer)
    assert len(done.raw_answer) > 90_000
    assert any("the answer was cut" in warning for warning in done.warnings)
    _, data = terminal.fitting(
        Record(events=[Step(step=1, node="final_response", status="started", reasoning="r" * 300_000), done])
    )
    assert len(data) < MB


@pytest.mark.parametrize(
    "field",
    [
        {"artifacts": {"t": {"chart": "x" * MB}}},
        {"extra": {"k": "x" * MB}},
        {"sources": [Source(title="x" * MB)]},
        {"warnings": ["x" * MB]},
        {"artifacts": {"t": {"chart": "x" * MB}}, "extra": {"k": "x" * MB}, "warnings": ["x" * MB]},
    ],
)
def test_what_is_too_large_beside_the_answer_is_left_out(field: dict[str, object]) -> None:
    """The answer stays, and a warning names what is gone."""
    done = Done.model_validate({"raw_answer": "yes", "reason": "answer_complete", **field})
    record, data = terminal.fitting(Record(events=[done]))
    assert len(data) < MB
    fitted = record.events[0]
    assert isinstance(fitted, Done)
    assert fitted.raw_answer == "yes"
    assert "left out" in fitted.warnings[-1]


@pytest.mark.parametrize("unit", ["word ", "\x01", "😀"])
def test_what_a_forced_end_says_is_shown_however_large_the_record_is(unit: str) -> None:
    """The chunk and the end have the same text, with artifacts of a megabyte beside them."""
    found = run()
    done = terminal.budget_exhausted(found, "max_steps of 1", {"answer": unit * (2 * MB // len(unit))})
    heavy = done.model_copy(update={"artifacts": {"t": {"chart": "x" * MB}}})
    record, data = terminal.fitting(
        Record(events=terminal.shown(found, [Step(step=1, node="t", status="failed", thought="t" * MB), heavy]))
    )
    assert len(data) < MB
    chunk, end = record.events[-2:]
    assert isinstance(chunk, Chunk)
    assert isinstance(end, Done)
    assert chunk.text == end.raw_answer
    assert len(end.raw_answer) > 60_000
    assert {"artifacts left out: larger than a record may be"} < set(end.warnings)
    assert any("the answer was cut" in warning for warning in end.warnings)
