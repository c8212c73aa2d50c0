"""The text that a tool gives the model beside its result, in whole runs."""

from typing import Any

import pytest
from nats.aio.msg import Msg

from contracts.tools.messages import ToolCall, ToolSpec
from contracts.wire import subjects
from tests.planner.conftest import TOOLS, Plan
from tests.support.model_server import ModelServer, action, answer
from tests.support.run_services import Handler, Told

TEXT = "Cold for the season."


async def weather(_: dict[str, Any]) -> Any:
    """A result, and what it means."""
    return Told(TEXT, {"celsius": 12})


WITH_TEXT: dict[str, tuple[ToolSpec, Handler]] = {**TOOLS, "weather": (ToolSpec(name="weather"), weather)}


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "stored"])
async def test_the_model_reads_the_text_beside_the_result(plan: Plan, provider: ModelServer, *, direct: bool) -> None:
    """The log keeps it with the outcome, however the call went."""
    provider.say(action("weather"), answer("Take a coat."))
    planning = await plan(tools=WITH_TEXT, direct=direct)
    if direct:
        await planning.calls_directly()
    story = await planning.tell()
    (observed,) = story.of("observed")
    assert (observed.observation, observed.content) == ({"celsius": 12}, TEXT)
    read = provider.ledger[-1].text
    assert TEXT in read
    assert read.index(TEXT) < read.index("celsius")


async def test_a_tool_learns_the_id_of_the_request(plan: Plan, provider: ModelServer) -> None:
    """The caller's, or the run's where the caller gave none."""
    seen: list[ToolCall] = []

    async def note(message: Msg) -> None:
        seen.append(ToolCall.model_validate_json(message.data))

    planning = await plan(tools=WITH_TEXT)
    await planning.bus.nc.subscribe(subjects.tool("weather"), cb=note)
    provider.say(*[action("weather"), answer("Take a coat.")] * 2)
    await planning.tell(request_id="req-789")
    run = (await planning.tell()).run
    assert [call.request_id for call in seen] == ["req-789", run]
