"""Check every promise on some runs, in a system that other runs use too."""

from services.messaging.connection import Bus
from tests.system.checker import RULES
from tests.system.client import Client
from tests.system.evidence import drained, gather
from tests.system.model import Plan
from tests.system.system import System
from tests.system.traces import Evidence, RunEvidence, judge

IDEMPOTENT = {"often": True, "once": False, "refuse": False}
"""Tool -> whether its calls may be repeated."""


async def follow(client: Client, plan: Plan) -> RunEvidence:
    """Ask for a run and follow it to its end."""
    run = RunEvidence(await client.ask(plan.query, key=plan.nth, **plan.request), script=plan)
    await client.follow(run.run_id, run.seen)
    return run


async def judged_sound(bus: Bus, system: System, *runs: RunEvidence) -> Evidence:
    """Wait until every message is acknowledged. No rule of the checker complains of these runs."""
    await drained(bus)
    requests = system.model.requests()
    for run in runs:
        run.requests = dict(requests[run.script.nth]) if run.script is not None else {}
    found = Evidence([*runs], idempotent=IDEMPOTENT)
    await gather(bus, found, system.ledger)
    known = {run.run_id for run in runs}
    found.executions = [each for each in found.executions if each.key.split(".")[0] in known]
    assert not (complaints := judge(found, RULES)), complaints
    return found
