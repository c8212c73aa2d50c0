"""Logs that earlier versions wrote still fold, and mean what they meant."""

import json
import time

from nats.aio.msg import Msg

from contracts.runs.events import RunStarted
from contracts.runs.requests import RunLimits, RunRequested
from contracts.wire import subjects
from contracts.wire.faults import Fault
from contracts.wire.ids import new_id
from contracts.wire.records import EVENTS_HEADER, Record
from tests.planner.conftest import Plan
from tests.support.model_server import ModelServer, action, answer
from tests.support.run_services import MODEL

CONTEXT = {"token": "t"}


async def test_a_run_that_holds_its_tool_context_in_the_log(plan: Plan, provider: ModelServer) -> None:
    """Its tools get it."""
    planning = await plan()
    given: list[object] = []

    async def take_call(message: Msg) -> None:
        given.append(json.loads(message.data)["context"])

    await planning.bus.nc.subscribe(subjects.tool("look"), cb=take_call)
    provider.say(action("look", q="x"), answer("yes"))
    run = new_id()
    request = RunRequested(
        run_id=run, tenant="default", requested_at=time.time_ns() // 1_000_000, trace_id=run, query="?"
    )
    tools = {"look": planning.catalogue.live()["look"].digest()}
    older = RunStarted(
        run_id=run, tenant="default", request=request, limits=RunLimits(), tools=tools, model=MODEL
    ).model_dump()
    older["request"]["tool_context"] = CONTEXT
    del older["has_tool_context"], older["approvals"]
    record = Record.model_validate({"events": [older]})
    await planning.bus.publish(
        subjects.log("default", run), record.model_dump_json().encode(), {EVENTS_HEADER: "run_started"}
    )
    await planning.bus.publish(
        subjects.request("default", run), request.model_dump_json().encode(), {"Nats-Msg-Id": run}
    )
    assert (await planning.ended(run)).end.raw_answer == "yes"
    assert given == [CONTEXT]


def test_a_call_that_nobody_could_approve_reads_as_a_rejected_one() -> None:
    """Older versions had a code of their own for it."""
    fault = Fault.model_validate({"code": "approval_unavailable", "reason": "there was no way to approve it"})
    assert fault.code == "rejected"
