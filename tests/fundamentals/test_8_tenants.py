"""A tenant is whom a run belongs to. With API keys, each caller sees the runs and artifacts of its own tenant only."""

from collections.abc import AsyncIterator

import httpx
import pytest

from runwire import Client, RunwireError
from runwire.errors import NotFound
from runwire.events import ArtifactStored
from tests.fundamentals.conftest import ACME_KEY, GLOBEX_KEY, KEYED_GATEWAY
from tests.support.model_server import ModelServer, action, answer
from tests.support.stack import Stack


@pytest.fixture
async def acme(stack: Stack) -> AsyncIterator[Client]:
    """A caller with the key of the tenant `acme`."""
    async with Client(stack.url_of(KEYED_GATEWAY), ACME_KEY) as client:
        yield client


@pytest.fixture
async def globex(stack: Stack) -> AsyncIterator[Client]:
    """A caller of another tenant."""
    async with Client(stack.url_of(KEYED_GATEWAY), GLOBEX_KEY) as client:
        yield client


async def test_without_a_key_nothing_is_answered(stack: Stack) -> None:
    """Wherever the gateway has keys."""
    async with Client(stack.url_of(KEYED_GATEWAY)) as stranger:
        with pytest.raises(RunwireError) as refused:
            await stranger.start("What is 1+1?")
    assert refused.value.code == "unauthorized"


async def test_a_run_of_another_tenant_does_not_exist(acme: Client, globex: Client, model: ModelServer) -> None:
    """It cannot be read, followed, cancelled or deleted, and neither can what its tools have stored."""
    model.say(action("fetch_minutes"), answer("They met."))
    run_id = await acme.start("What was said?", agent="scripted")
    seen = [event async for event in acme.follow(run_id)]
    artifact_id = next(event.artifact_id for event in seen if isinstance(event, ArtifactStored))

    for attempt in (globex.status, globex.cancel, globex.delete):
        with pytest.raises(NotFound):
            await attempt(run_id)
    for stream in (globex.follow(run_id), globex.fetch(artifact_id)):
        with pytest.raises(NotFound):
            await anext(aiter(stream))
    assert run_id not in [run.run_id async for run in globex.list_runs()]
    assert run_id in [run.run_id async for run in acme.list_runs()]
    assert (await acme.status(run_id)).status == "done"


async def test_a_deleted_run_is_gone(client: Client, http: httpx.AsyncClient, model: ModelServer) -> None:
    """With its events, its payload, its entry in the list and its artifacts."""
    model.say(action("fetch_minutes"), answer("They met."))
    run_id = await client.start("What was said?", agent="scripted")
    seen = [event async for event in client.follow(run_id)]
    artifact_id = next(event.artifact_id for event in seen if isinstance(event, ArtifactStored))
    assert (await http.get(f"/v1/artifacts/{artifact_id}")).status_code == 200

    await client.delete(run_id)
    with pytest.raises(NotFound):
        await client.status(run_id)
    with pytest.raises(NotFound):
        await anext(aiter(client.follow(run_id)))
    assert (await http.get(f"/v1/artifacts/{artifact_id}")).status_code == 404
    assert run_id not in [run.run_id async for run in client.list_runs()]
    with pytest.raises(NotFound):
        await client.delete(run_id)
