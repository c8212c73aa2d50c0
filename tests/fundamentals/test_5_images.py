"""A question may come with images: as data URLs, as files, or by the id of what was uploaded before."""

import base64
from io import BytesIO

import httpx
from PIL import Image

from runwire import Client
from runwire.events import RunStarted
from tests.support.model_server import ModelServer, Seen, answer


def image_of(colour: str) -> bytes:
    """A PNG of one colour."""
    target = BytesIO()
    Image.new("RGB", (8, 8), colour).save(target, "PNG")
    return target.getvalue()


def colours_shown(request: Seen) -> list[tuple[int, ...]]:
    """The colour of each image that the model was sent, in order."""
    parts = [
        part
        for message in request.body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
    ]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    images = [Image.open(BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB") for url in urls]
    return [tuple(image.tobytes()[:3]) for image in images]


async def test_the_model_sees_the_images_of_a_question(http: httpx.AsyncClient, model: ModelServer) -> None:
    """One as a data URL and one that was uploaded: the model gets both, in order."""
    model.say(answer("Red, then blue."))
    uploaded = await http.post("/v1/artifacts", content=image_of("blue"), headers={"Content-Type": "image/png"})
    images = [
        {"data": f"data:image/png;base64,{base64.b64encode(image_of('red')).decode()}"},
        {"artifact_id": uploaded.json()["artifact_id"]},
    ]
    body = {"query": "Which colours are these?", "agent": "scripted", "images": images}
    reply = (await http.post("/chat", json=body)).json()

    assert reply["payload"]["raw_answer"] == "Red, then blue."
    assert colours_shown(model.ledger[0]) == [(255, 0, 0), (0, 0, 255)]


async def test_the_log_holds_references_and_no_bytes(
    client: Client, http: httpx.AsyncClient, model: ModelServer
) -> None:
    """Listeners see ids. The id gives the image to people, and to a later question."""
    model.say(answer("Green."))
    run_id = await client.start("Which colour is this?", agent="scripted", images=[image_of("lime")])
    started = await anext(aiter(client.follow(run_id)))
    await client.result(run_id)

    assert isinstance(started, RunStarted)
    (reference,) = started.request.images
    stored = await http.get(f"/v1/artifacts/{reference.artifact_id}")
    assert Image.open(BytesIO(stored.content)).convert("RGB").getpixel((0, 0)) == (0, 255, 0)

    await client.chat("And once more?", agent="scripted", images=[reference.artifact_id])
    assert [colours_shown(request) for request in model.ledger] == [[(0, 255, 0)]] * 2


async def test_what_is_no_image_is_refused_before_a_run_begins(http: httpx.AsyncClient) -> None:
    """The refusal names the image."""
    broken = f"data:image/png;base64,{base64.b64encode(image_of('red')[:40]).decode()}"
    refused = await http.post(
        "/v1/runs", json={"query": "What is this?", "agent": "scripted", "images": [{"data": broken}]}
    )
    assert (refused.status_code, refused.json()["code"]) == (422, "image_invalid")
    assert refused.json()["errors"][0]["field"] == "images.0"
