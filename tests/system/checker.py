"""Rules of storms over runs, which directed tests are judged by too (`traces`). Those about one run stand here.

A rule that no altered record makes complain is not trusted: test_rules.py alters them one by one.
"""

from collections import Counter
from collections.abc import Iterator

from tests.system import plan_rules, session_rules
from tests.system.traces import TERMINAL, Event, RunEvidence, end_of, events_of, planned_calls, rules_in


def ends_exactly_once(run: RunEvidence) -> Iterator[str]:
    """Every accepted run has one terminal event, the last on its log."""
    log = list(events_of(run, "log"))
    ends = [event["type"] for _, event in log if event["type"] in TERMINAL]
    if len(ends) != 1:
        yield f"{len(ends)} terminal events: {ends}"
    elif log[-1][1]["type"] not in TERMINAL:
        yield f"{log[-1][1]['type']} stored after the terminal event"


def ends_done(run: RunEvidence) -> Iterator[str]:
    """A run ends `done` with an answer where nothing else stood in the way, and `cancelled` only by its client."""
    end = end_of(run)
    if end is None:
        return
    kind = end[1]["type"]
    if kind == "cancelled" and not run.cancelled_by_client:
        yield "cancelled, though nobody asked for it"
    if kind == "error" and not run.may_fail:
        yield f"ended in error {end[1].get('code')}: {end[1].get('error')}"
    if kind == "done" and end[1].get("reason") != "answer_complete" and not run.may_fail:
        yield f"done without an answer: {end[1].get('reason')}"


def settles_each_call_once(run: RunEvidence) -> Iterator[str]:
    """No call has two outcomes, and a run that is `done` has one for each call."""
    observed = Counter(event["call_id"] for event in run.of("observed"))
    planned = {call["call_id"] for _, call in planned_calls(run)}
    for call_id, count in observed.items():
        if count > 1:
            yield f"call {call_id} settled {count} times"
        if call_id not in planned:
            yield f"call {call_id} settled but never planned"
    end = end_of(run)
    if (
        end is not None
        and end[1]["type"] == "done"
        and end[1].get("reason") == "answer_complete"
        and set(observed) != planned
    ):
        yield f"done with open calls {sorted(planned - set(observed))}"


def streams_the_answer(run: RunEvidence) -> Iterator[str]:
    """The chunks of the last attempt, joined, are the answer; numbered without gaps; closed by `done`.

    The record of the end may bring the last ones.
    """
    end = end_of(run)
    if end is None or end[1]["type"] != "done":
        return
    chunks = [
        event for record, event in events_of(run) if event["type"] == "chunk" and record.sequence <= end[0].sequence
    ]
    if not chunks:
        yield "no chunk of the answer"
        return
    last = max(_attempt_of(chunk) for chunk in chunks)
    part = [chunk for chunk in chunks if _attempt_of(chunk) == last]
    if last[1] == 0 and "".join(chunk["text"] for chunk in part) != end[1]["raw_answer"]:
        yield "the chunks of the last attempt are not the answer"
    shown = ""
    for chunk in chunks:
        shown = shown[: chunk["offset"]] + chunk["text"]
    if shown != end[1]["raw_answer"]:
        yield "the chunks, each put at its offset, are not the answer"
    if [chunk["seq"] for chunk in part] != list(range(len(part))):
        yield f"chunk numbers {[chunk['seq'] for chunk in part]}"
    if not part[-1]["done"]:
        yield "the answer's stream is not closed"


def _attempt_of(chunk: Event) -> tuple[int, int, int]:
    return chunk["action_seq"], chunk.get("part", 0), chunk["attempt"]


def stores_nothing_of_the_dead(run: RunEvidence) -> Iterator[str]:
    """No chunk of an attempt is stored once a later attempt was announced, or the run has ended."""
    newest: dict[int, int] = {}
    ended = False
    for _, event in events_of(run):
        if event["type"] == "asked":
            newest[event["turn"]] = event["attempt"]
        elif event["type"] in TERMINAL:
            ended = True
        elif event["type"] in {"chunk", "thinking"}:
            if ended:
                yield "a chunk stored after the end"
            elif event["attempt"] < newest.get(event["action_seq"] + event.get("part", 0), 0):
                announced = newest[event["action_seq"] + event.get("part", 0)]
                yield f"a chunk of attempt {event['attempt']} stored after attempt {announced} was announced"


def names_the_last_chunk(run: RunEvidence) -> Iterator[str]:
    """`last_stream_seq` of an end is that of a record on the stream, and no chunk is newer; 0: there is no chunk."""
    end = end_of(run)
    named = end[1].get("last_stream_seq") if end is not None else None
    if named is None:
        return
    stream = list(events_of(run, "stream"))
    newest = max((record.sequence for record, event in stream if event["type"] in {"chunk", "thinking"}), default=0)
    if named < newest or named not in {0, *(record.sequence for record, _ in stream)}:
        yield f"the end names {named} as the stream's last sequence; its newest chunk has {newest}"


def asks_in_order(run: RunEvidence) -> Iterator[str]:
    """Attempts of a turn count up by one, turns too, and a decision is that of the newest attempt."""
    turn, attempt = 0, 0
    for event in run.log:
        if event["type"] == "asked":
            expected = (turn, attempt + 1) if event["turn"] == turn else (turn + 1, 1)
            if (event["turn"], event["attempt"]) != expected:
                yield f"asked turn {event['turn']} attempt {event['attempt']} after turn {turn} attempt {attempt}"
            turn, attempt = event["turn"], event["attempt"]
        elif (
            event["type"] == "step"
            and event["status"] == "started"
            and (event["step"], event["attempt"]) != (turn, attempt)
        ):
            decided = f"turn {event['step']} attempt {event['attempt']}"
            yield f"decision of {decided} while turn {turn} attempt {attempt} was asked"


def retries_when_the_wait_is_over(run: RunEvidence) -> Iterator[str]:
    """What follows a failed request of a model is recorded with it: who is asked, and not before when."""
    failed: Event | None = None
    for record, event in events_of(run, "log"):
        if event["type"] == "model_failed":
            if failed is not None:
                yield f"attempt {event['attempt']} failed without having been asked"
            failed = event
        elif event["type"] == "asked" and failed is not None:
            expected = (failed["turn"], failed["attempt"] + 1, "provider", failed["next_model"])
            if (event["turn"], event["attempt"], event["cause"], event["model"]) != expected:
                yield f"asked turn {event['turn']} attempt {event['attempt']} for {event['cause']} instead of a retry"
            if (early_s := failed["retry_at"] / 1000 - record.at) > 0:
                yield f"attempt {event['attempt']} asked {early_s:.3f} s before the wait was over"
            failed = None


def shows_what_is_stored(run: RunEvidence) -> Iterator[str]:
    """What a client got over all its connections is the log read afterwards: same events, same order, none twice."""
    end = end_of(run)
    if end is None:
        return
    stored = [_essence(event) for record, event in events_of(run) if record.sequence <= end[0].sequence]
    seen = [_essence(event) for _, event in run.seen]
    if seen != stored:
        at = next(
            (n for n, (a, b) in enumerate(zip(seen, stored, strict=False)) if a != b), min(len(seen), len(stored))
        )
        yield f"the client got {len(seen)} events of {len(stored)}; they differ from position {at}"


def is_closed_for_others(run: RunEvidence) -> Iterator[str]:
    """Once a run has ended, the index says how, and none of its timers is left. One that never began has no entry."""
    end = end_of(run)
    if end is None:
        return
    has_begun = any(event["type"] == "run_started" for event in run.log)
    if has_begun and run.in_index != end[1]["type"]:
        yield f"ended {end[1]['type']}, and the index says {run.in_index or 'nothing'}"
    if run.timers:
        yield f"{run.timers} timers left"


def _essence(event: Event) -> str:
    parts = (event["type"], *(event.get(k) for k in ("turn", "step", "status", "attempt", "seq", "call_id", "text")))
    return repr(parts)


RULES = rules_in(globals()) | plan_rules.RULES | session_rules.RULES
