"""A new strategy is a folder and a line of the registry; what it keeps of a run survives the death of a planner."""

from pathlib import Path

import pytest

from contracts.runs.requests import RunRequested
from contracts.wire import subjects
from contracts.wire.names import new_id, unix_ms
from services.planner.strategies.registry import REGISTRY
from tests.planner.conftest import provider as provider_of_planners
from tests.planner.strategies.drafts import planner, strategy
from tests.support.buses import provisioned
from tests.support.dying_planners import DyingPlanner
from tests.support.model_server import ModelServer, Say
from tests.support.nats_server import NatsServer
from tests.support.run_services import Planning, planning

provider = provider_of_planners


def test_it_is_small() -> None:
    """Its state, its requests and what follows from the replies."""
    code = Path(strategy.__file__).read_text(encoding="utf-8").partition("\n\n\n")[2]
    assert len([line for line in code.splitlines() if line.strip()]) < 60


@pytest.mark.parametrize("moment", ["before", "stored", "known"])
async def test_its_state_survives_a_kill(
    own_nats_server: NatsServer, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The planner dies as it records the draft. If the draft was stored, another one asks for the title alone."""
    monkeypatch.setitem(REGISTRY, *planner.LINE)
    provider.reset()
    url, run = own_nats_server.url, new_id()
    async with provisioned(url, "client") as bus:
        provider.say(Say(text="Draft"), marker="Write a draft")
        provider.say(Say(text="Title"), marker="Write a title")
        what = (url, provider.url, '"node":"draft"', moment)
        dying = DyingPlanner(*what, program="tests.planner.strategies.drafts.planner:run", ack_wait_s=1.0)
        request = RunRequested(
            run_id=run, tenant="default", requested_at=unix_ms(), trace_id=run, query="?", strategy="drafts"
        )
        await bus.publish(subjects.request("default", run), request.model_dump_json().encode(), {"Nats-Msg-Id": run})
        await dying.dead()
        async with planning(url, provider, ack_wait_s=1.0):
            ended = await Planning(bus, None, None, None).ended(run, 60)  # type: ignore[arg-type]
    assert ended.end.raw_answer == "Title: Draft"
    assert len([asked for asked in provider.ledger if "Write a draft" in asked.text]) == (
        2 if moment == "before" else 1
    )
