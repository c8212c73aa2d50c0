"""Rules of storms over conversations."""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

import rfc8785

from tests.system import checker, plan_rules, session_rules
from tests.system.conversations.evidence import Conversations
from tests.system.traces import Event, RunEvidence, StoredRecord, end_of, events_of, rules_in

_CLOCKS_S = 0.05
_TAKEN_WITHIN_S = 30.0
"""A planner takes a message within so many seconds, whatever is struck meanwhile."""


def one_run_has_the_turn(found: Conversations) -> Iterator[str]:
    """By the session's log each run begins at most once, and not while another one has the turn."""
    for session, records in found.sessions.items():
        begun: set[str] = set()
        current = ""
        for _, event in _session_events(records):
            if event["type"] == "run_begun":
                if event["run"] in begun:
                    yield f"{session}: run {event['run']} begun twice"
                if current:
                    yield f"{session}: run {event['run']} begun while {current} has the turn"
                begun.add(event["run"])
                current = event["run"]
            elif event["type"] == "run_yielded" and event["run"] == current:
                current = ""
                begun.remove(event["run"])  # A report begins again.
            elif event["type"] == "run_ended" and event["run"] == current:
                current = ""


def runs_do_not_overlap(found: Conversations) -> Iterator[str]:
    """By the runs' own logs a run starts after the one before it in its session has ended.

    A report that gave its turn away may end before it learns of that.
    """
    yielded = {
        event["run"]
        for records in found.sessions.values()
        for _, event in _session_events(records)
        if event["type"] == "run_yielded"
    }
    spans: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for run in found.runs:
        started = [record.sequence for record, event in events_of(run, "log") if event["type"] == "run_started"]
        end = end_of(run)
        if started and end is not None and run.run_id not in yielded:
            spans[found.session_of[run.run_id]].append((started[0], end[0].sequence, run.run_id))
    for session, found_spans in spans.items():
        ordered = sorted(found_spans)
        for (_, ended, first), (began, _, second) in pairwise(ordered):
            if began < ended:
                yield f"{session}: {second} started before {first} had ended"


def _has_yielded(run: RunEvidence) -> bool:
    """Whether a run is a report that gave its turn to another one, and began again after it."""
    return any(event["type"] == "yielded" for event in run.log)


def knows_what_was_said(found: Conversations) -> Iterator[str]:
    """A run knows the conversation up to the end of the run before it.

    A report whose turn came again before it had started is told with its `resumed`.
    """
    known = {
        run.run_id: max(event.get("conversation_seq") or event.get("session_seq") or 0 for event in told)
        for run in found.runs
        if not _has_yielded(run) and (told := run.of("run_started", "resumed"))
    }
    for session, records in found.sessions.items():
        ended_at = 0
        for record, event in _session_events(records):
            if event["type"] == "run_ended":
                ended_at = record.sequence
            elif event["type"] == "run_begun" and known.get(event["run"], ended_at) < ended_at:
                yield f"{session}: {event['run']} knows the session to {known[event['run']]}, not to {ended_at}"


def resumes_each_pause_once(found: Conversations) -> Iterator[str]:
    """Each pause has one decision, or lies under the end of its run. Held results that a run waits for are one too."""
    for run in found.runs:
        paused = {event["pause_id"] for event in run.log if _is_pause(event)}
        held = {pause["pause_id"] for event in run.of("tasks_paused") for pause in event["pauses"]}
        resumed = Counter(event["pause_id"] for event in run.of("resumed") if event["pause_id"])
        end = end_of(run)
        for pause in sorted(paused | resumed.keys()):
            if resumed[pause] > 1:
                yield f"{run.run_id}: pause {pause} was decided {resumed[pause]} times"
            if pause not in paused | held:
                yield f"{run.run_id}: pause {pause} was decided and never began"
            if not resumed[pause] and end is not None and end[1]["type"] == "done":
                yield f"{run.run_id}: done, and nobody decided pause {pause}"


def guards_each_side_effect(found: Conversations) -> Iterator[str]:
    """What needs an approval has one, with the digest of the call, before it happens; and it happens once."""
    runs = {run.run_id: run for run in found.runs}
    for key, count in Counter(each.key for each in found.executions).items():
        if count > 1:
            yield f"{key} happened {count} times"
    for execution in found.executions:
        run_id, _, call_id = execution.key.partition(".")
        run = runs.get(run_id)
        tool = _tool_of(run, call_id) if run is not None else ""
        if run is None or tool not in {"pay", "paint"}:
            continue
        pauses = {event["pause_id"]: event for event in run.log if _is_pause(event)}
        mine = {pause for pause, event in pauses.items() if event["call_id"] == call_id}
        decided = [
            event
            for record, event in events_of(run, "log")
            if event["type"] == "resumed" and event["pause_id"] in mine and record.at <= execution.at + _CLOCKS_S
        ]
        if tool == "paint":
            if not any(event["decision"] == "answer" for event in decided):
                yield f"{execution.key} happened without an answer"
        elif not any(event["digest"] == _approved_digest(run, pauses[event["pause_id"]], event) for event in decided):
            yield f"{execution.key} happened without its approval"


def _approved_digest(run: RunEvidence, paused: Event, resumed: Event) -> str | None:
    """The digest that an approval of this pause has: that of the call, with the arguments of an edit."""
    if resumed["decision"] == "approve":
        return str(paused["digest"])
    if resumed["decision"] != "edit":
        return None
    about = {
        "tenant": "default",
        "run": run.run_id,
        "call_id": paused["call_id"],
        "tool": paused["tool"],
        "spec": paused["spec"],
        "arguments": resumed["arguments"],
        "revision": paused["revision"],
    }
    return hashlib.sha256(rfc8785.dumps(about)).hexdigest()


def takes_each_input_once(found: Conversations) -> Iterator[str]:
    """A text that was accepted is in the log of its run once; one without an answer at most once, and nowhere else.

    A text that no planner had taken yet (202) is dropped where its run ends before one does.
    """
    places = _places_of_texts(found)
    ends = {run.run_id: end[0].at for run in found.runs if (end := end_of(run)) is not None}
    for given in found.inputs:
        at = places[given.text]
        is_dropped = given.status == 202 and not at and ends.get(given.run, math.inf) < given.at + _TAKEN_WITHIN_S
        if given.status in {200, 202} and at != [given.run] and not is_dropped:
            yield f"{given.text} was accepted by {given.run}, and is in {at}"
        elif at not in ([], [given.run]):
            yield f"{given.text} is in {at}, not once in {given.run}"


def _places_of_texts(found: Conversations) -> dict[str, list[str]]:
    """Text -> the runs whose log has it, as an input or in the decision about a pause.

    Several pauses of one run may have been rejected with one text.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for run in found.runs:
        notes: set[str] = set()
        for event in run.log:
            if event["type"] == "input_added":
                places[event["text"]].append(run.run_id)
            elif event["type"] == "resumed":
                notes |= {text for text in (event.get("note"), event.get("input")) if isinstance(text, str) and text}
        for note in notes:
            places[note].append(run.run_id)
    return places


def merges_into_one_run(found: Conversations) -> Iterator[str]:
    """A run that ended as `merged` is an input, or the answer to a pause, of the run that it names, and of no other."""
    took: dict[str, list[str]] = defaultdict(list)
    for session_records in found.sessions.values():
        for _, event in _session_events(session_records):
            if event["type"] == "run_merged":
                took[event["run"]].append(event["into"])
    for run in found.runs:
        end = end_of(run)
        merged = end is not None and end[1]["type"] == "done" and end[1].get("route") == "merged"
        into = took.get(run.run_id, [])
        if end is not None and merged and into != [end[1]["extra"].get("run_id")]:
            yield f"{run.run_id} ended as merged into {end[1]['extra'].get('run_id')}; its session says {into}"
        if end is not None and end[1]["type"] == "done" and into and not merged:
            yield f"{run.run_id} was merged into {into}, and answered all the same"
        brought = [
            other.run_id for other in found.runs for event in other.of("input_added") if event.get("run") == run.run_id
        ]
        if len(brought) > 1 or (brought and merged and brought != into):
            yield f"{run.run_id}: its text is in {brought}, its session says {into}"


def answers_each_decision_once(found: Conversations) -> Iterator[str]:
    """Of all decisions about a pause one takes effect; a repetition with the same key gets the first answer."""
    accepted: dict[tuple[str, str], set[str]] = defaultdict(set)
    answers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in found.decisions:
        if each.status == 200:
            accepted[each.run, each.pause].add(each.key)
        answers[each.run, each.key].add(f"{each.status} {each.code}".strip())
    for (run, pause), keys in accepted.items():
        if len(keys) > 1:
            yield f"{run}: {len(keys)} decisions about pause {pause} took effect"
    for (run, key), said in answers.items():
        if "200" in said and len(said) > 1:
            yield f"{run}: decision {key} was answered with {sorted(said)}"


def _session_events(records: list[StoredRecord]) -> Iterator[tuple[StoredRecord, Event]]:
    for record in sorted(records, key=lambda each: each.sequence):
        for event in record.events:
            yield record, event


def _is_pause(event: Event) -> bool:
    return event["type"] == "paused" and event.get("pause_id") is not None


def _tool_of(run: RunEvidence, call_id: str) -> str:
    for event in run.log:
        if event["type"] in {"step", "called"}:
            for call in event.get("calls", []):
                if call["call_id"] == call_id:
                    return str(call["tool"])
    return ""


OWN = rules_in(globals())
RULES = {
    **OWN,
    "ends_exactly_once": checker.RULES["ends_exactly_once"],
    **plan_rules.OF_ANY_PLAN,
    **session_rules.ALWAYS,
}
