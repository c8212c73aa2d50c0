"""How calls start: those that need an approval wait in `paused` until a person decides; some are made directly. Pure.

tool_runner checks the approval of each call again (`services.shared.tools.approvals.is_allowed`). A call that is made
directly is marked in the record that announces it.
"""

import json
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from contracts.runs.events import Called, Observed, Paused, PlannedCall, Step
from contracts.runs.pauses import DEFAULT_PAUSE_S, ApprovalRule, CallApproval, pause_id, token_of
from contracts.sessions.tasks import TASK_TOOLS
from services.planner.run.calls import tasks
from services.planner.run.state.run import Event, Run
from services.shared.tools import approvals
from services.shared.tools.builtin import OF_PLANNER

MAX_QUOTED_CHARACTERS = 4_000
"""Of edited arguments, and of a person's note, in the line for the model."""


def held(run: Run, now: int, step: int, calls: Iterable[PlannedCall]) -> list[Paused]:
    """Return a pause for each call of a step that needs a person, for the record that starts them. `now`: Unix ms."""
    started = run.started
    if started is None or not (started.approvals or started.approval_rules or started.tasks):
        return []
    found = []
    for call in calls:
        if call.tool in TASK_TOOLS:
            asked = tasks.confirmation(run, now, step, call)
            found += [asked] if asked is not None else []
            continue
        rule = approvals.asking_rule(started.approval_rules, call.tool, call.args)
        if (rule is None and call.tool not in started.approvals) or is_approved_by_rule(run, call, rule):
            continue
        lasts_s = DEFAULT_PAUSE_S if rule is None else rule.expires_in_s
        pause = Paused(
            reason="approval",
            until=now + int(lasts_s * 1000),
            pause_id=pause_id(started.run_id, f"{call.call_id}-approval", 0),
            source="tool" if rule is None else "policy",
            title=rule.title if rule is not None else "",
            call_id=call.call_id,
            tool=call.tool,
            spec=started.tools.get(call.tool, ""),
            arguments=call.args,
            step=step,
            rule=None if rule is None else rule.name,
        )
        found.append(with_token(run, pause, call))
    return found


def is_approved_by_rule(run: Run, call: PlannedCall, rule: ApprovalRule | None) -> bool:
    """Whether the rule asks once per session, and was approved for this tool already."""
    if rule is None or rule.ask != "once_per_session":
        return False
    decisions, approved = run.pause_decisions, (rule.name, call.tool)
    return approved in decisions.approved_rules or approved in decisions.approved_before


def with_token(run: Run, paused: Paused, call: PlannedCall) -> Paused:
    """Return the pause of a call with the digest and the token of what waits. Raises ValueError if it is no JSON."""
    digest = digest_of(run, call, paused.revision)
    token = token_of(paused.pause_id or "", paused.revision, digest)
    return paused.model_copy(update={"digest": digest, "token": token})


def digest_of(run: Run, call: PlannedCall, revision: int = 1) -> str:
    """Return what an approval of this call is about. Raises ValueError for arguments that are no JSON."""
    started = run.opened
    spec = started.tools.get(call.tool, "")
    return approvals.call_digest(started.tenant, started.run_id, call.call_id, call.tool, spec, call.args, revision)


def approval_of(run: Run, call: PlannedCall) -> CallApproval | None:
    """Return the approval that the message of a call carries; None: it needs none."""
    given = run.pause_decisions.approved.get(call.call_id)
    if given is not None or run.started is None:
        return given
    rule = approvals.asking_rule(run.started.approval_rules, call.tool, call.args)
    return CallApproval(digest=digest_of(run, call)) if is_approved_by_rule(run, call, rule) else None


def as_called(run: Run, call: PlannedCall) -> PlannedCall:
    """Return a call of the model as it was made: a person may have edited its arguments."""
    consent = run.pause_decisions.consents.get(call.call_id)
    return call if consent is None or consent.arguments is None else call.model_copy(update={"args": consent.arguments})


def line_about(run: Run, outcomes: Mapping[str, Observed], resolved: Container[str] = ()) -> str:
    """Return the line for the model about the approvals of these calls; empty: there is nothing to say.

    `resolved`: ids of calls whose arguments hold values of earlier results. The model may not be shown these, so only
    the names of the arguments are given.
    """
    lines = []
    for call_id, observed in outcomes.items():
        if (consent := run.pause_decisions.consents.get(call_id)) is None:
            continue
        tool = tasks.SHOWN_NAMES.get(observed.tool, observed.tool)
        if consent.arguments is not None:
            shown = list(consent.arguments) if call_id in resolved else consent.arguments
            arguments = json.dumps(shown, ensure_ascii=False)[:MAX_QUOTED_CHARACTERS]
            named = " (only their names are shown)" if call_id in resolved else ""
            lines.append(f"A person changed the arguments of {tool} before it ran{named}: {arguments}")
        if consent.note:
            lines.append(f"The person who approved {tool} says: {consent.note[:MAX_QUOTED_CHARACTERS]}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class DirectRules:
    """Which calls may be made directly now."""

    instance: str
    """The instance of tool_runner that is called."""
    slow: frozenset[str] = frozenset()
    """Tools that are not called directly."""

    def marked(self, run: Run, events: Sequence[Event]) -> list[Event]:
        """Return the events of a record with its direct calls marked.

        Calls beyond `max_parallel` and those that wait for an approval are marked when they are called. A call that its
        tool has paused before goes through CALLS, so that no two of its rounds are mistaken for each other.
        """
        held = {event.call_id for event in events if isinstance(event, Paused)}
        return [self._marked(run, event, held) for event in events]

    def _marked(self, run: Run, event: Event, held: Collection[str | None]) -> Event:
        match event:
            case Step(status="started", calls=[_, *_]):
                places = run.limits.max_parallel
                calls = [*(self._marked_call(call, held) for call in event.calls[:places]), *event.calls[places:]]
            case Called():
                calls = [self._marked_call(call, held) for call in event.calls]
            case _:
                return event
        return event.model_copy(update={"calls": calls})

    def _marked_call(self, call: PlannedCall, held: Collection[str | None]) -> PlannedCall:
        if call.tool in self.slow or call.tool in OF_PLANNER or call.round or call.call_id in held:
            return call
        return call.model_copy(update={"direct": self.instance})
