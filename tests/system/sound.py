"""Check every promise on some runs, in a system that other runs use too."""

from services.messaging.connection import Bus
from tests.support.waiting import wait_until
from tests.system.checker import judge
from tests.system.client import Client
from tests.system.evidence import gather, left
from tests.system.model import Plan
from tests.system.system import System
from tests.system.traces import Evidence, RunEvidence

IDEMPOTENT = {"often": True, "once": False, "refuse": False}
"""Tool -> whether its calls may be repeated."""


async def follow(client: Client, plan: Plan) -> RunEvidence:
    """Ask for a run and follow it to its end."""
    run = RunEvidence(await client.ask(plan.query, key=plan.nth, **plan.request), script=plan)
    await client.follow(run.run_id, run.seen)
    return run


async def judged_sound(bus: Bus, system: System, *runs: RunEvidence) -> Evidence:
    """Wait until every message is acknowledged. No rule of the checker complains of these runs."""

    async def drained() -> bool:
        return not any((await left(bus)).values())

    await wait_until(drained, what="every message is acknowledged")
    requests = system.model.requests()
    for run in runs:
        run.requests = dict(requests[run.script.nth]) if run.script is not None else {}
    found = await gather(bus, list(runs), system.ledger, IDEMPOTENT)
    known = {run.run_id for run in runs}
    found.executions = [each for each in found.executions if each.key.split(".")[0] in known]
    assert not (complaints := judge(found)), complaints
    return found
