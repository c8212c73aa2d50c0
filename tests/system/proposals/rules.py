"""Rules of storms of proposals, and what such a storm leaves beside logs and ledger."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from services.shared.sessions.proposals import TRANSITIONS
from tests.system import checker, session_rules
from tests.system.traces import Event, Evidence, rules_in


@dataclass
class Proposed:
    """A proposal, and the names of the rows that its operations add."""

    proposal_id: str
    session_id: str
    names: list[str]


@dataclass
class Decided:
    """A decision, and its last answer."""

    proposal_id: str
    verb: str
    chosen: list[int] | None
    status: int
    answer: dict[str, Any]


@dataclass
class Proposals(Evidence):
    """And what people did."""

    proposals: list[Proposed] = field(default_factory=list)
    decisions: list[Decided] = field(default_factory=list)
    shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Proposal -> what HTTP says of it in the end."""
    rows: list[str] = field(default_factory=list)
    """The names in the table."""
    table_id: str = ""


def applies_once(found: Proposals) -> Iterator[str]:
    """Each row is there once, and only those that a person has chosen; all of them, once the proposal is applied."""
    counts = Counter(found.rows)
    for name, count in counts.items():
        if count > 1:
            yield f"{name} was added {count} times"
    for each in found.proposals:
        state, chosen = found.shown[each.proposal_id]["state"], found.shown[each.proposal_id]["operations"]
        there = [number for number, name in enumerate(each.names) if name in counts]
        if state == "applied" and there != chosen:
            yield f"{each.proposal_id}: {chosen} were applied, and {there} are there"
        begun = {number for event in _events(found, each) for number in event.get("operations", ())}
        if not {*there} <= begun:
            yield f"{each.proposal_id}: {there} are there, and nobody chose all of them"


def changes_legally(found: Proposals) -> Iterator[str]:
    """By the session's log each change is legal, none is left applying, and HTTP says what the log says."""
    for each in found.proposals:
        state: Any = None
        for event in _events(found, each):
            before, after = TRANSITIONS[event["type"]]
            if state not in before:
                yield f"{each.proposal_id}: {event['type']} while it was {state}"
            state = after
        shown = found.shown[each.proposal_id]["state"]
        if state != shown or state in {None, "applying"}:
            yield f"{each.proposal_id}: it ends as {state}, and is shown as {shown}"


def counts_what_was_done(found: Proposals) -> Iterator[str]:
    """The report says how many rows there are of it."""
    for each in found.proposals:
        shown = found.shown[each.proposal_id]
        count = sum(name in each.names for name in set(found.rows))
        if shown["state"] == "applied" and (shown["report"]["applied"], shown["report"]["failed"]) != (count, 0):
            yield f"{each.proposal_id}: {shown['report']} of {count} rows"


def answers_alike(found: Proposals) -> Iterator[str]:
    """A choice that was carried out is answered with the same verdicts, however often; no other one is."""
    for each in found.proposals:
        answers = [one for one in found.decisions if one.proposal_id == each.proposal_id and one.status == 200]
        said = {(one.verb, repr(one.chosen), repr(one.answer["verdicts"])) for one in answers}
        if len(said) > 1:
            yield f"{each.proposal_id}: {sorted(said)}"
        if answers and answers[0].answer["state"] != found.shown[each.proposal_id]["state"]:
            yield f"{each.proposal_id}: answered as {answers[0].answer['state']}"


def _events(found: Proposals, proposed: Proposed) -> Iterator[Event]:
    for record in sorted(found.sessions[proposed.session_id], key=lambda each: each.sequence):
        for event in record.events:
            if event["type"] in TRANSITIONS and event["proposal_id"] == proposed.proposal_id:
                yield event


_OF_RUNS = (
    *("ends_exactly_once", "ends_done", "streams_the_answer", "stores_nothing_of_the_dead"),
    *("names_the_last_chunk", "asks_in_order", "shows_what_is_stored"),
)
OWN = rules_in(globals())
RULES = OWN | {name: checker.RULES[name] for name in _OF_RUNS} | session_rules.ALWAYS
