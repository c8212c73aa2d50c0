"""Whatever a tool does, its call has one outcome in the log, of a known kind, and the run goes on to its answer."""

from typing import Any

import pytest

from services.messaging.connection import Bus
from tests.system.client import Client
from tests.system.evidence import records
from tests.system.model import Plan
from tests.system.system import System

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

OUTCOMES: dict[str, set[str]] = {
    "silent": {"tool_timed_out", "outcome_unknown"},
    "garbage": {"invalid_result"},
    "wrong": {"invalid_result"},
    "large": {"result_too_large"},
    "wordy": {"tool_error"},
    "dies": {"tool_timed_out", "outcome_unknown", "tool_unavailable"},
}
#: Characters of a reason that a model is shown at most.
SHORT = 4000


async def _outcome(system: System, client: Client, bus: Bus, tool: str) -> dict[str, Any]:
    """Have a run call the tool; check that the run ends done; return the one outcome of the call."""
    plan = Plan(turns=((tool,),), nth=f"rough-{tool}")
    run = await client.ask(plan.query, key=plan.nth)
    end = await client.follow(run, [])
    assert (end["type"], end.get("reason")) == ("done", "answer_complete")
    observed = [event for record in await records(bus, run) for event in record.events if event["type"] == "observed"]
    assert [each["call_id"] for each in observed] == ["1-1"]
    assert len(system.executions(run)) == 1
    return dict(observed[0])


@pytest.mark.parametrize("tool", OUTCOMES)
async def test_misbehaviour_has_one_typed_outcome(tool: str, system: System, client: Client, bus: Bus) -> None:
    """The model is told what went wrong, in few words, and the tool was asked once."""
    outcome = await _outcome(system, client, bus, tool)
    assert outcome["status"] == "failed"
    assert outcome["failure"]["code"] in OUTCOMES[tool]
    assert 0 < len(outcome["failure"]["reason"]) < SHORT


async def test_the_first_of_two_answers_counts(system: System, client: Client, bus: Bus) -> None:
    """A second answer changes nothing."""
    outcome = await _outcome(system, client, bus, "twice")
    assert (outcome["status"], outcome["observation"]) == ("succeeded", {"number": 1})
