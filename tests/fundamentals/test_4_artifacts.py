"""An artifact is what a tool makes for people. It never passes through the model."""

import httpx

from runwire import Client
from runwire.events import ArtifactChunk, Done, Observed
from tests.fundamentals.tutorial_tools import MINUTES
from tests.support.model_server import ModelServer, action, answer


async def test_an_artifact_is_kept_away_from_the_model(client: Client, model: ModelServer) -> None:
    """The model reads a placeholder with type and size; the payload holds the artifact itself."""
    model.say(action("fetch_minutes"), answer("They met."))
    run = await client.chat("What was said?", agent="scripted")

    assert run.payload is not None
    assert run.payload.artifacts["fetch_minutes"]["minutes"] == MINUTES
    assert "They met." in model.ledger[1].text
    assert "<artifact:str" in model.ledger[1].text
    assert not any("for people only" in request.text for request in model.ledger)


async def test_an_artifact_has_an_address(client: Client, http: httpx.AsyncClient, model: ModelServer) -> None:
    """A payload with references names its id; anyone of the tenant fetches it from the gateway, whole or in ranges."""
    model.say(action("fetch_minutes"), answer("They met."))
    run = await client.chat("What was said?", agent="scripted")
    status = (await http.get(f"/v1/runs/{run.run_id}", params={"artifacts": "refs"})).json()
    reference = status["payload"]["artifacts"]["fetch_minutes"]["minutes"]

    address = f"/v1/artifacts/{reference['artifact_id']}"
    assert (await http.get(address)).text == MINUTES
    part = await http.get(address, headers={"Range": "bytes=4-10"})
    assert (part.status_code, part.text) == (206, "minutes")
    listed = (await http.get(f"/v1/runs/{run.run_id}/artifacts")).json()["artifacts"]
    assert [each["ref"]["artifact_id"] for each in listed] == [reference["artifact_id"]]


async def test_a_chart_is_streamed_while_it_grows(client: Client, http: httpx.AsyncClient) -> None:
    """Listeners get the pieces in order; the payload holds the finished chart, and payload and list say its type."""
    run_id = await client.start("Which region grew most in sales.csv? Draw a chart.")
    seen = [event async for event in client.follow(run_id)]

    pieces = [event for event in seen if isinstance(event, ArtifactChunk)]
    assert [piece.seq for piece in pieces] == list(range(len(pieces)))
    assert pieces[-1].done
    done = seen[-1]
    assert isinstance(done, Done)
    assert "series" in done.artifacts["analyze_table"]["chart"]
    assert done.artifact_types == {"analyze_table": {"chart": pieces[0].artifact_type}}
    listed = (await http.get(f"/v1/runs/{run_id}/artifacts")).json()["inline"]
    assert listed == [{"tool": "analyze_table", "field": "chart", "artifact_type": pieces[0].artifact_type}]
    observed = next(event for event in seen if isinstance(event, Observed))
    assert str(observed.observation["chart"]).startswith("<artifact:")
