"""`response_format` is left out for models that refuse it."""

from collections.abc import AsyncIterator

import pytest

from services.planner.conversation.encoding import Messages
from services.planner.models.by_provider import WithoutRefusedFormats
from services.planner.models.errors import ModelFailed
from services.planner.models.types import Model, ModelRequest
from tests.support.model_paths import PATHS, models_on
from tests.support.model_server import ModelServer, Say

REQUEST = ModelRequest(
    model="openai/scripted",
    messages=Messages.of([{"role": "user", "content": "?"}]),
    response_format={"type": "json_object"},
)


@pytest.fixture(params=PATHS)
async def model(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Model]:
    """A model behind the scripted provider."""
    server.reset()
    models = models_on(request.param, server.url)
    yield WithoutRefusedFormats(models)
    await models.aclose()


async def outcome(model: Model) -> str:
    """The code of the failure, or `replied`."""
    try:
        async for _ in model.stream(REQUEST):
            pass
    except ModelFailed as error:
        return error.fault.code
    return "replied"


def sent_with_format(server: ModelServer) -> list[bool]:
    """Which requests had a `response_format`."""
    return ["response_format" in seen.body for seen in server.ledger]


async def test_a_refused_format_is_left_out_from_then_on(server: ModelServer, model: Model) -> None:
    """The refused request is a failure that names the parameter; the next one leaves it out, and all after it."""
    server.say(Say(status=400), Say(text="yes"))
    assert [await outcome(model) for _ in range(3)] == ["response_format_refused", "replied", "replied"]
    assert sent_with_format(server) == [True, False, False]


async def test_a_refusal_that_is_not_about_the_format_is_not_remembered(server: ModelServer, model: Model) -> None:
    """Refused without the format too: other requests have it again."""
    server.say(Say(status=400), Say(status=400), Say(text="yes"))
    assert [await outcome(model) for _ in range(3)] == ["response_format_refused", "model_refused", "replied"]
    assert sent_with_format(server) == [True, False, True]
