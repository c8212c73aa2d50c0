"""Promises about runs of the strategy `planned`: the plan, its calls one after another, the answer.

test_rules.py proves that each can complain.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.system.traces import Event, Evidence, RunEvidence, end_of, rules_in

_TEMPLATE = re.compile(r"\$([0-9]+)\.output\.(\S+)")
_STATUSES = {"succeeded": "success", "failed": "failed"}


@dataclass
class Planned:
    """A plan with calls, and what the log says of its execution."""

    step: Event
    """The decision."""
    announced: list[tuple[Event, dict[str, Event]]] = field(default_factory=list)
    """Each call with the outcomes of this plan that its announcement follows."""
    newest: dict[str, Event] = field(default_factory=dict)
    """The newest announcement of each call, by its id."""
    outcomes: dict[str, Event] = field(default_factory=dict)
    """By the id of the call."""
    begun: int = 0
    ends: list[Event] = field(default_factory=list)
    """Of the execution."""
    is_answered: bool = False
    """Whether the model was asked for something after it had ended."""

    @property
    def calls(self) -> list[dict[str, Any]]:
        """As the model has planned them."""
        return list((self.step.get("plan") or {"calls": []})["calls"])

    def call_id(self, index: int) -> str:
        """The id of a call, which is numbered from 0."""
        return f"{self.step['step']}-{index}"

    def take(self, event: Event, *, decided: bool) -> None:
        """Note what an event after the decision says. `decided`: a person has decided about something before."""
        is_execution = event["type"] == "step" and event["node"] == "execute"
        self.begun += is_execution and event["status"] == "started"
        self.ends += [event] if is_execution and event["status"] != "started" else []
        if event["type"] in {"step", "called"}:
            for call in event.get("calls", []):
                if not _is_again(call, self.newest.get(call["call_id"]), decided=decided):
                    self.announced.append((call, dict(self.outcomes)))
                self.newest[call["call_id"]] = call
        elif event["type"] == "asked":
            self.is_answered = self.is_answered or bool(self.ends) or self.step["status"] == "invalid"
        elif event["type"] == "observed":
            self.outcomes[event["call_id"]] = event


def is_planned(run: RunEvidence) -> bool:
    """Whether the run has the strategy `planned`."""
    return any(event["type"] == "run_started" and event.get("strategy") == "planned" for event in run.log)


def plans_of(run: RunEvidence) -> list[Planned]:
    """Every plan with calls or errors, in order. Plans of the strategy `react` are none."""
    found: list[Planned] = []
    decided = False
    for event in run.log if is_planned(run) else ():
        decided = decided or event["type"] == "resumed"
        if event["type"] == "step" and event["node"] == "plan" and (event.get("plan") or event["status"] == "invalid"):
            found.append(Planned(event))
        elif found:
            found[-1].take(event, decided=decided)
    return found


def _is_again(call: Event, before: Event | None, *, decided: bool) -> bool:
    """Whether a call is announced once more after a decision, or because another handling has taken it over."""
    return before is not None and (decided or bool(before.get("direct") and not call.get("direct")))


def asks_at_most_twice(run: RunEvidence) -> Iterator[str]:
    """A direct response takes one request, every other plan two: for itself, and for the answer. More are attempts."""
    if not is_planned(run):
        return
    turns = sorted({event["turn"] for event in run.of("asked")})
    nodes = {1: {"plan", "execute"}, 2: {"respond"}}
    steps = run.of("step")
    for step in steps:
        if step.get("node") not in nodes.get(step["step"], set()):
            yield f"turn {step['step']} led to {step.get('node')}"
    if not set(turns) <= {1, 2}:
        yield f"asked for turns {turns}"
    decided = [step for step in steps if step.get("node") == "plan" and step["status"] == "started"]
    is_direct = any(not step.get("plan") for step in decided)
    end = end_of(run)
    has_answer = end is not None and end[1]["type"] == "done" and end[1].get("reason") == "answer_complete"
    if (is_direct and turns != [1]) or (has_answer and not is_direct and turns != [1, 2]):
        yield f"asked for turns {turns} by a {'direct response' if is_direct else 'plan'}"


def announces_each_request(run: RunEvidence) -> Iterator[str]:
    """A model gets no request but those that are announced: a repeated one is a later attempt of its turn."""
    turns = {"plan": {1}, "respond": {2}}
    asked = run.of("asked")
    for stage, count in run.requests.items():
        announced = [
            event
            for event in asked
            if event.get("cause") != "restated" and event["turn"] in turns.get(stage, {event["turn"]})
        ]
        if count > len(announced):
            yield f"{count} requests to {stage}, {len(announced)} were announced"


def calls_in_order(run: RunEvidence) -> Iterator[str]:
    """Calls of a plan are announced one at a time, in its order, each once, and none after a failure.

    A call is announced again only after the decision of a person, or where another handling has taken it over.
    """
    for plan in plans_of(run):
        for index, (call, before) in enumerate(plan.announced):
            if call["call_id"] != plan.call_id(index) or index >= len(plan.calls):
                yield f"call {call['call_id']} announced as number {index} of {len(plan.calls)}"
            elif call["tool"] != plan.calls[index]["tool_name"]:
                yield f"call {call['call_id']} is one of {call['tool']}, not of {plan.calls[index]['tool_name']}"
            waits = [plan.call_id(n) for n in range(index) if plan.call_id(n) not in before]
            failed = [each["call_id"] for each in before.values() if each["status"] != "succeeded"]
            if waits or failed:
                yield f"call {call['call_id']} announced while {waits} had not ended and {failed} had failed"


def passes_results_on(run: RunEvidence) -> Iterator[str]:
    """The arguments of a call are those of the plan, with the values of earlier results for its templates."""
    for plan in plans_of(run):
        for index, (call, before) in enumerate(plan.announced[: len(plan.calls)]):
            planned = plan.calls[index]["arguments"]
            results = {n: before.get(plan.call_id(n), {}).get("observation") for n in range(index)}
            expected = _filled(planned, results)
            if call["args"] != expected:
                yield f"call {call['call_id']} has {call['args']}, not {expected}"
            if call.get("resolved", False) != (expected != planned):
                yield f"call {call['call_id']} says {call.get('resolved')} of templates in {planned}"


def _filled(value: Any, results: dict[int, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, results) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, results) for each in value]
    found = _TEMPLATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    taken = results.get(int(found[1]))
    for segment in found[2].split("."):
        taken = taken[int(segment)] if isinstance(taken, list) else (taken or {}).get(segment, f"nothing at {value}")
    return taken


def says_how_calls_ended(run: RunEvidence) -> Iterator[str]:
    """The end of an execution, the only one, has the status of each call: that of its outcome, or `not_executed`."""
    end = end_of(run)
    is_done = end is not None and end[1]["type"] == "done"
    for plan in plans_of(run):
        if plan.begun > 1 or len(plan.ends) > 1 or (is_done and len(plan.ends) != plan.begun):
            yield f"the plan of turn {plan.step['step']} was begun {plan.begun} times and ended {len(plan.ends)} times"
        for ended in plan.ends:
            outcomes = [plan.outcomes.get(plan.call_id(index)) for index in range(len(plan.calls))]
            expected = ["not_executed" if each is None else _STATUSES[each["status"]] for each in outcomes]
            if ended.get("statuses") != expected:
                yield f"ended with {ended.get('statuses')}, and the outcomes say {expected}"
            is_whole = set(expected) == {"success"}
            if (ended["status"] == "succeeded") != is_whole or bool(ended.get("halt_reason")) == is_whole:
                yield f"ended {ended['status']} because of {ended.get('halt_reason')}, with {expected}"


def answers_what_has_ended(run: RunEvidence) -> Iterator[str]:
    """A run that is done has asked for the answer after each plan that was rejected or ended, also by its deadline.

    Not after a plan that came when a budget was exhausted: nothing of it ran, and its record ends the run.
    """
    end = end_of(run)
    if end is None or end[1]["type"] != "done":
        return
    for plan in plans_of(run):
        is_too_late = plan.step in end[0].events and end[1].get("reason") == "budget_exhausted"
        if (plan.ends or (plan.step["status"] == "invalid" and not is_too_late)) and not plan.is_answered:
            yield f"the plan of turn {plan.step['step']} has ended, and the answer was not asked for"


def runs_nothing_invalid(run: RunEvidence) -> Iterator[str]:
    """Of a plan with errors no call is announced, and its execution does not begin; every other plan has none."""
    for plan in plans_of(run):
        errors = plan.step.get("errors") or []
        if bool(errors) != (plan.step["status"] == "invalid"):
            yield f"a plan is {plan.step['status']} with {len(errors)} errors"
        if errors and (plan.announced or plan.begun or plan.ends):
            yield f"{len(plan.announced)} calls announced of a plan with {len(errors)} errors"


def follows_its_script(run: RunEvidence) -> Iterator[str]:
    """A run with an answer has that of its model; a plan that the model has made is rejected or fails where it must."""
    script, end = run.script, end_of(run)
    if script is None or end is None or end[1]["type"] != "done" or end[1].get("reason") != "answer_complete":
        return
    if end[1]["raw_answer"] != script.answer:
        yield f"its answer is {end[1]['raw_answer']!r}"
    if is_planned(run) != (script.strategy == "planned"):
        yield f"its strategy is not {script.strategy}"
    if script.strategy != "planned":
        return
    plans = plans_of(run)
    if [plan.calls for plan in plans] != ([script.calls] if script.turns else []):
        yield f"its plans are {[plan.calls for plan in plans]}"
    for plan in plans:
        if (plan.step["status"] == "invalid") != bool(script.wrong):
            yield f"its plan is {plan.step['status']}, with {script.wrong or 'no error'}"


def calls_with_what_was_announced(evidence: Evidence) -> Iterator[str]:
    """A tool gets the values of earlier results that the announcement of its call holds."""
    announced = {
        f"{run.run_id}.{call['call_id']}": call["args"].get("after", "")
        for run in evidence.runs
        for plan in plans_of(run)
        for call, _ in plan.announced
    }
    for execution in evidence.executions:
        expected = announced.get(execution.key, execution.after)
        if execution.after != expected:
            yield f"{execution.key}: called after {execution.after!r}, announced after {expected!r}"


RULES = rules_in(globals())
OF_ANY_PLAN = {
    name: RULES[name]
    for name in (
        *("calls_in_order", "passes_results_on", "says_how_calls_ended"),
        *("answers_what_has_ended", "runs_nothing_invalid"),
    )
}
"""Those that hold for runs that plan again, too."""
