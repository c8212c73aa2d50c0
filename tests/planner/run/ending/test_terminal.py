"""Every ending fits a record, whatever is in it; the record after a model call holds the last words of its reply."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.runs.events import Chunk, Done, Step, Thinking
from contracts.runs.payload import Source
from contracts.wire.records import Record
from services.planner.run.commands import Ack
from services.planner.run.ending import terminal
from services.planner.run.state.fold import fold
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Decision
from tests.planner.handlings import Attempt
from tests.planner.run_world import World, calls, final, started

MB = 1 << 20


def run() -> Run:
    found = Run()
    fold(found, 1, 0, [started()])
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


WORDS = Chunk(seq=1, text="ne", done=True, action_seq=1, attempt=1)
THOUGHT = Thinking(seq=3, text="", done=True, action_seq=1, attempt=1)


def asked(world: World, owner: str = "REQUESTS:1", holder: str = "h") -> Attempt:
    """A handling whose model call is in flight."""
    handling = world.handling(owner, holder=holder, started=started())
    world.play(handling)
    return handling


def last(world: World) -> Any:
    return world.written[-1][-1]


@pytest.mark.parametrize(
    ("decision", "kinds"),
    [
        (final(), ["thinking", "chunk", "step", "step", "done"]),
        (calls(), ["thinking", "chunk", "step"]),
    ],
)
def test_the_last_words_stand_before_the_decision_in_its_record(decision: Decision, kinds: list[str]) -> None:
    """One record; the words are not appended again with the next one."""
    world = World()
    world.play(asked(world), replace(decision, last_words=(THOUGHT, WORDS), stream_seq=7))
    assert [event.type for event in world.written[1]] == kinds
    assert sum(event.type == "chunk" for events in world.written for event in events) == 1


@pytest.mark.parametrize("kind", ["cancel", "timer"])
def test_words_of_a_superseded_call_are_not_appended(kind: str) -> None:
    """A cancel or a deadline came first: the run ends with what was shown until then."""
    world = World()
    handling = asked(world)
    handling.decision = replace(final(), last_words=(WORDS,), stream_seq=7)
    world.play(world.handling("INBOX:1", kind, "other", 70_000))
    texts = [event.text for events in world.written for event in events if isinstance(event, Chunk)]
    assert WORDS.text not in texts
    assert isinstance(world.play(handling)[-1], Ack)
    assert world.types().count("chunk") == len(texts)


@pytest.mark.parametrize(("stored", "expected"), [(7, 7), (0, 0)])
def test_an_end_says_up_to_where_the_stream_goes(stored: int, expected: int) -> None:
    """The chunks of the answer are the newest records, and a first turn without any leaves the stream empty."""
    world = World()
    world.play(asked(world), replace(final(), stream_seq=stored))
    assert last(world).last_stream_seq == expected
