"""What follows a failed request to a model: another one, the next model, or the end. Pure. The one retry policy.

Rule 1: rate limits, server errors, time-outs, empty and broken replies are retried after a growing pause, or after the
pause that the provider asks for. If that is longer than `longest_pause_s`, the next model is called instead; the last
model is waited for.
Rule 2: a model gets `max_provider_failures` retries in one model call, then the next model is called, at once.
Rule 3: a context overflow and a refusal are not retried, since the same request would fail again.
Rule 4: a server that refuses a field of the request gets the request again without it (`models.refusals`). This is no
retry of rule 2.
Rule 5: no wait begins that would end later than `model_total_s` after the model call began.
"""

from dataclasses import dataclass
from typing import Literal

from contracts.wire.faults import Code, Fault
from services.planner.run.commands import Rules
from services.planner.run.state.run import Run
from services.planner.run.turn.decision import Failed

FIELD_REFUSED: frozenset[Code] = frozenset({"response_format_refused", "field_refused"})
MAX_FIELDS_REFUSED = 16
"""Of one model in one model call."""
MAX_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class Remedy:
    """Call `model` after `wait_s` seconds: a retry of the failed model, or a fallback to the next one."""

    then: Literal["retry", "fallback"]
    model: str
    wait_s: float


def remedy(run: Run, failed: Failed, now: int, rules: Rules) -> Remedy | None:
    """Return what follows a failed request of the model call in flight, or None if the call has failed for good."""
    codes = [each.fault.code for each in run.failed if each.model == run.calling]
    refused = min(sum(code in FIELD_REFUSED for code in codes), MAX_FIELDS_REFUSED)
    if failed.fault.code in FIELD_REFUSED and refused < MAX_FIELDS_REFUSED:
        return Remedy("retry", run.calling, 0.0)
    retries = len(codes) - refused
    names = list(dict.fromkeys([run.model, *(run.started.fallbacks if run.started else ())]))  # As they are tried.
    later = names[names.index(run.calling) + 1 :] if run.calling in names else names
    following = later[0] if later else None
    asked_for_s = failed.retry_after_s or 0.0
    is_too_long = asked_for_s > rules.longest_pause_s and following is not None
    if failed.fault.retryable and retries < rules.max_provider_failures and not is_too_long:
        grown_s = min(rules.longest_pause_s, rules.first_pause_s * 2.0 ** min(retries, MAX_DOUBLINGS))
        # Half of it is random, so that runs that failed together do not retry together.
        found = Remedy("retry", run.calling, max(asked_for_s, grown_s * (0.5 + failed.chance / 2)))
    elif following is not None and (failed.fault.retryable or failed.elsewhere):
        found = Remedy("fallback", following, 0.0)
    else:
        return None
    return found if now + found.wait_s * 1000 < run.call_at + rules.model_total_s * 1000 else None


def combined(run: Run, failed: Failed) -> Fault:
    """Return the fault of a model call that has failed for good: the last code, and the reasons of all models."""
    if not (failed.fault.retryable or failed.elsewhere):
        return failed.fault
    faults = {each.model: each.fault for each in run.failed} | {run.calling: failed.fault}
    return Fault(
        code=failed.fault.code,
        reason="; ".join(fault.reason for fault in faults.values()),
        retryable=any(fault.retryable for fault in faults.values()),
    )
